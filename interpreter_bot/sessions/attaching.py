"""Files that people send: into the workspace, and described for the model.

What is in a table is found out by its own session's kernel: a file from outside is never parsed
by the bot itself.
"""

from __future__ import annotations

import dataclasses
import logging
import mimetypes
import secrets
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import describing
from interpreter_bot.kernels import executing, workspaces
from interpreter_bot.sessions import requests, stages
from interpreter_bot.text import formatting

_log = logging.getLogger(__name__)

_DESCRIBING_SECONDS: Final = 15.0
_DETAIL_CHARACTERS: Final = 6000
_MOST_DESCRIBED: Final = 10
_REFUSED: Final = "[The person also sent {name!r}, which is not in /mnt/data: {error}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """What became of attachments.

    Attributes:
        infos: those that are in the workspace.
        refusals: of each of the others, what a model is to know.
    """

    infos: tuple[values.FileInfo, ...] = ()
    refusals: tuple[str, ...] = ()


async def store(
    attachments: Iterable[requests.Attachment],
    workspace: workspaces.Workspace,
    stage: stages.Stage,
    limits: settings.Limits,
) -> Stored:
    """Put attachments into the workspace; whatever is refused is said, and the rest goes on."""
    infos, refusals = [], []
    for attachment in attachments:
        try:
            info = await put(attachment, workspace, limits)
        except errors.BotError as error:
            _log.info("an attachment was refused", exc_info=error)
            name = workspaces.safe_name(attachment.name)
            stage.notice(f"{name} was left out: {error}")
            refusals.append(_REFUSED.format(name=name, error=error))
        else:
            infos.append(info)
    return Stored(tuple(infos), tuple(refusals))


async def put(
    attachment: requests.Attachment, workspace: workspaces.Workspace, limits: settings.Limits
) -> values.FileInfo:
    """Put one attachment into the workspace.

    Raises:
        BotError: it is refused, or could not be had.
    """
    if attachment.size_bytes is not None and attachment.size_bytes > limits.upload_bytes:
        most = formatting.size(limits.upload_bytes)
        raise errors.FileTooLargeError(f"It is larger than the {most} that one file may have.")
    return await workspace.put(attachment.name, attachment.open())


async def described(infos: Sequence[values.FileInfo], kernel: executing.Kernel) -> str:
    """Describe files for a model: names, sizes, types; of tables columns, types, first rows."""
    details = await _looked_into(infos[:_MOST_DESCRIBED], kernel)
    return "\n".join(
        describing.file(
            info.name,
            info.size_bytes,
            kind=mimetypes.guess_type(info.name)[0] or "",
            details=details.get(number, ""),
        )
        for number, info in enumerate(infos)
    )


async def _looked_into(
    infos: Sequence[values.FileInfo], kernel: executing.Kernel
) -> dict[int, str]:
    """Let the kernel say what is in files, by their number; what it says is not to be trusted."""
    if not infos:
        return {}
    script = resources.files("interpreter_bot.sessions").joinpath("describing.txt").read_text()
    mark = f"--{secrets.token_hex(16)} "
    given = {"NAMES": [info.name for info in infos], "MARK": mark}
    printed: list[str] = []

    def show(output: values.Output) -> None:
        if isinstance(output, values.Text) and output.stream == "stdout":
            printed.append(output.text)

    # In a namespace of its own, so that no variable of the person is touched.
    code = f"exec({script!r}, {given!r})"
    finished = await kernel.execute(code, show=show, seconds=_DESCRIBING_SECONDS)
    if finished.ending is not values.Ending.OK:
        _log.info("files could not be described: %s", finished)
    details: dict[int, str] = {}
    for piece in "".join(printed).split(mark)[1:]:
        number, _, text = piece.partition("\n")
        if number.isdecimal() and text.strip():
            details[int(number)] = text.strip()[:_DETAIL_CHARACTERS]
    return details
