"""Settings of conversations and skills, and of what is stored: where, how long, by which keys."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated, Final, Self

import pydantic
import pydantic_core

from interpreter_bot.setting_groups import fields

WARNING_DAYS: Final = 3
"""How long before files are deleted people are warned."""


class Sessions(fields.Group):
    """Conversations: how many at a time, and their titles."""

    concurrent_turns: Annotated[int, pydantic.Field(ge=1)] = 32
    """Most turns that run at a time, in all conversations. Further ones wait, and people take
    turns.
    """
    model_titles: bool = True
    """Let the model name a new conversation of the page after its first answer, by one short
    request. Otherwise its title is the start of the first message."""


class Jobs(fields.Group):
    """Long-running code: the model may let it run on in the background, after its answer."""

    seconds: Annotated[float, pydantic.Field(ge=0, le=7 * 86_400)] = 3600.0
    """Longest run. 0 means that all code ends with its answer."""


class Schedules(fields.Group):
    """Schedules of people: prompts, refreshed answers and alerts, at times that they set."""

    per_person: Annotated[int, pydantic.Field(ge=0)] = 10
    """Schedules of one person in a workspace or server. 0 turns schedules off."""


class Store(fields.Group):
    """The database."""

    url: Annotated[str, pydantic.Field(repr=False)] = ""
    """`postgresql://…` or `sqlite:////absolute/file.db`. Empty means a SQLite file in
    `paths.data`."""


class Retention(fields.Group):
    """How long files of a conversation are kept: its /mnt/data, its saved variables, and the
    pictures and pages it showed. Messages are kept. A conversation that is in use loses nothing."""

    days: Annotated[float, pydantic.Field(ge=0)] = 30.0
    """Files of a conversation that was not used for this long are deleted; people are warned three
    days before. 0 keeps them."""
    person_bytes: Annotated[int, pydantic.Field(ge=0)] = 10 * fields.GIB
    """Files of all conversations that one person began. Above it, those of the least recently used
    conversations are deleted. 0 means no limit."""
    total_bytes: Annotated[int, pydantic.Field(ge=0)] = 0
    """The same for all conversations together. 0 means half of the data directory's disk."""
    record_days: Annotated[float, pydantic.Field(gt=0)] = 90.0
    """How long the records of what code did outside are kept: connections, queries, tool calls and
    installed packages."""

    @pydantic.model_validator(mode="after")
    def _check_days(self) -> Self:
        if 0 < self.days <= WARNING_DAYS:
            raise pydantic_core.PydanticCustomError(
                "retention",
                "days must be more than {days}, which is when people are warned; 0 keeps all files",
                {"days": WARNING_DAYS},
            )
        return self


class Snapshots(fields.Group):
    """Saved variables: of idle sessions, for the session's next kernel."""

    bytes: Annotated[int, pydantic.Field(ge=0)] = 2 * fields.GIB
    """Size of one session's saved variables. Beyond it, the largest are not saved. A quarter of it
    is for the variables, and for the files, of an earlier state that `undo` can return to. 0 saves
    nothing."""
    checkpoints: Annotated[int, pydantic.Field(ge=0, le=100)] = 5
    """Earlier states of a conversation that `undo` can return to. 0 means none."""

    @property
    def checkpoint_bytes(self) -> int:
        """Size of the variables in such a state, and of the files in it."""
        return self.bytes // 4


class Skills(fields.Group):
    """Your instructions and modules for models and kernels.

    A skill is used after `interpreter-bot skills accept NAME@DIGEST`, and until it changes.
    """

    directories: tuple[pathlib.Path, ...] = ()
    """Directories of skills in the agentskills format: one directory per skill."""


class Encryption(fields.Group):
    """Keys for the secrets that the bot stores, such as the tokens of Slack's OAuth."""

    keys: pydantic.SecretStr = pydantic.SecretStr("")
    """Fernet keys (32 bytes in URL-safe base64), separated by spaces. The first encrypts, the
    others still decrypt. Empty means the file `keys` in the data directory, one key per line,
    newest first; it is created when needed."""


def _default_data() -> pathlib.Path:
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/interpreter-bot")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return pathlib.Path(state).expanduser() / "interpreter-bot"


def _default_runtime() -> pathlib.Path:
    if os.geteuid() == 0:
        return pathlib.Path("/run/interpreter-bot")
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if directory and os.access(directory, os.W_OK):
        return pathlib.Path(directory) / "interpreter-bot"
    # Created with mode 0700, and refused when another user created it first.
    return pathlib.Path(f"/tmp/interpreter-bot-{os.geteuid()}")  # noqa: S108


class Paths(fields.Group):
    """Paths on the host."""

    data: pathlib.Path = pydantic.Field(default_factory=_default_data)
    """Workspaces and the database. Survives restarts."""
    runtime: pathlib.Path = pydantic.Field(default_factory=_default_runtime)
    """Sockets and other files of one run. Keep it short: socket paths end at 107 bytes."""
    host_sockets: pathlib.Path | None = None
    """Directory of the sockets where host processes on this machine listen. By default one in
    `runtime` for each `data`. A bot and a host of different users have to name the same one.
    """
    private: tuple[pathlib.Path, ...] = ()
    """Further paths that code in kernels must not see. The bot refuses to start if kernels could
    read them."""
