"""Settings of conversations and skills, and of what is stored: where, how long, by which keys."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated, Literal, Self

import pydantic
import pydantic_core

from interpreter_bot.setting_groups import fields


class Sessions(fields.Group):
    """Conversations: how many at once, and how they end."""

    concurrent_turns: Annotated[int, pydantic.Field(ge=1)] = 32
    """Turns at once, of all conversations; further ones wait, fairly between people."""
    waiting_requests: Annotated[int, pydantic.Field(ge=1)] = 20
    """Requests that may wait in one conversation; further ones are refused."""
    message_characters: Annotated[int, pydantic.Field(ge=1)] = 100_000
    """The longest message; what is longer belongs into a file."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether a person is asked before the model's code runs: not at all, once per answer, every
    time. It holds on all platforms; servers, channels and people can choose a stricter one."""
    edits_undo: bool = True
    """Whether a message that is edited runs on the variables and files of before it, where nothing
    was asked since and all of them are kept; else it runs on those that there are."""
    model_titles: bool = True
    """Whether the model names a new conversation of the page after its first answer, by one short
    request; else its title is how the first message begins."""
    warning_seconds: Annotated[float, pydantic.Field(ge=0)] = 5 * 60.0
    """How long before an idle kernel is let go people hear of it; 0 means that they do not."""
    closing_seconds: Annotated[float, pydantic.Field(ge=0)] = 20.0
    """How long turns may go on when the bot is told to end; then they are stopped."""


class Store(fields.Group):
    """What is remembered, and where."""

    url: Annotated[str, pydantic.Field(repr=False)] = ""
    """`postgresql://…` or `sqlite:////absolute/file.db`; empty means a file in `paths.data`."""


class Retention(fields.Group):
    """How long the files of a conversation are kept: its /mnt/data, and the pictures and pages that
    it showed. What was said is kept; a conversation that is in use loses nothing.
    """

    days: Annotated[float, pydantic.Field(ge=0)] = 30.0
    """Files of a conversation that was not used for so long are deleted; 0 keeps them."""
    warning_days: Annotated[float, pydantic.Field(ge=1)] = 3.0
    """How long before that people hear of it."""
    person_bytes: Annotated[int, pydantic.Field(ge=0)] = 10 * fields.GIB
    """Files of all conversations that one person began; above it, those of the least recently used
    are deleted. 0 sets no limit."""
    total_bytes: Annotated[int, pydantic.Field(ge=0)] = 0
    """The same of all conversations; 0 means half of the data directory's disk."""

    @pydantic.model_validator(mode="after")
    def _warn_after_use(self) -> Self:
        if 0 < self.days <= self.warning_days:
            raise pydantic_core.PydanticCustomError(
                "retention",
                "days must be more than warning_days, or each conversation is warned at once; "
                "0 keeps all files",
            )
        return self


class Snapshots(fields.Group):
    """Variables of idle sessions: saved, and brought back by the session's next kernel."""

    enabled: bool = True
    """Whether they are saved."""
    bytes: fields.Positive = 2 * fields.GIB
    """Size of those of one session; beyond it, the largest are not saved."""
    seconds: fields.Seconds = 60.0
    """Time for saving those of one session, and for bringing them back."""
    checkpoints: Annotated[int, pydantic.Field(ge=0, le=100)] = 5
    """How many earlier states of one conversation are kept to go back to, by `undo`; 0 for none."""
    checkpoint_bytes: fields.Positive = 512 * fields.MIB
    """What those may hold of earlier variables, and as much of earlier files. A session with more
    memory than that is saved only when it is idle."""
    checkpoint_seconds: fields.Seconds = 2.0
    """One that takes longer to save is saved for a twentieth of the time, or when it is idle;
    others are saved right after code."""
    end_seconds: fields.Seconds = 30.0
    """Time for saving all that is not saved when the bot ends."""
    days: Annotated[float, pydantic.Field(gt=0)] = 30.0
    """How long they are kept after they were last saved or brought back."""
    disk_share: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.2
    """Of the disk, for those of all sessions; the least recently used go first."""


class Skills(fields.Group):
    """Instructions and modules of the operator, for models and kernels.

    None is used before `interpreter-bot skills accept NAME@DIGEST`, nor one that has changed.
    """

    directories: tuple[pathlib.Path, ...] = ()
    """Directories of skills in the format of agentskills: in each, a directory for each skill."""
    prompt_characters: Annotated[int, pydantic.Field(ge=0)] = 8_000
    """What a model is told of all of them together; of those beyond it only the names."""


class Encryption(fields.Group):
    """Keys that encrypt the secrets which the bot stores, such as the tokens of Slack's OAuth."""

    keys: pydantic.SecretStr = pydantic.SecretStr("")
    """Keys of Fernet (32 bytes in URL-safe base64), separated by spaces: the first one encrypts,
    the others still decrypt. Empty means those in `key_file`."""
    key_file: pathlib.Path | None = None
    """Holds them, one a line, newest first; by default `keys` in `paths.data`, made when needed."""


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
    """Workspaces and the database; survives restarts."""
    runtime: pathlib.Path = pydantic.Field(default_factory=_default_runtime)
    """Sockets and other things of one run. Keep it short: socket paths end at 107 bytes."""
    host_sockets: pathlib.Path | None = None
    """Directory in which the processes that keep kernels listen; by default one in `runtime` for
    each `data`. Bots of another user, whose `data` is their own, name the same one."""
    private: tuple[pathlib.Path, ...] = ()
    """Further paths that no code in a kernel may see."""
