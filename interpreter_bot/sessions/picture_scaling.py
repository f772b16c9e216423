"""Pictures for the model, decoded and scaled down by their own session's kernel.

The bot reads no more than the head of a file: it never decodes a picture from outside. A kernel
that lies deceives its own model, and nothing else.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.agent import chat_messages, picture_messages
from interpreter_bot.kernels import executions
from interpreter_bot.kernels.files import workspaces

_log = logging.getLogger(__name__)

_SECONDS: Final = 20.0
_CODE: Final = (
    "get_ipython().show_scaled({names!r}, {contents!r}, most_side={side}, most_bytes={most})"
)


async def find(infos: Sequence[values.FileInfo], workspace: workspaces.Workspace) -> list[str]:
    """Return the names of the files that are pictures, by their content."""
    found = []
    for info in infos:
        try:
            async with workspace.read(info.name) as content:
                async for chunk in content:
                    if picture_messages.is_picture(chunk[: picture_messages.HEAD_BYTES]):
                        found.append(info.name)
                    break
        except errors.WorkspaceError as error:
            _log.info("a file could not be looked into", exc_info=error)
    return found


async def scale(
    kernel: executions.Kernel, *, names: Sequence[str] = (), contents: Sequence[bytes] = ()
) -> list[chat_messages.Picture | None]:
    """Scale pictures down.

    Args:
        kernel: does it.
        names: of files in the workspace.
        contents: of others.

    Returns:
        One for each, those of files first; None if it could not be scaled.
    """
    found: dict[int, chat_messages.Picture] = {}
    count = len(names) + len(contents)

    def show(output: values.Output) -> None:
        if isinstance(output, values.Image) and output.plain in map(str, range(count)):
            picture = picture_messages.scaled(output.mime, output.data)
            if picture is not None:
                found[int(output.plain)] = picture

    code = _CODE.format(
        names=list(names),
        contents=[base64.b64encode(one).decode("ascii") for one in contents],
        side=picture_messages.MOST_SIDE,
        most=picture_messages.MOST_BYTES,
    )
    finished = await kernel.execute(code, show=show, seconds=_SECONDS)
    if finished.ending is not values.Ending.OK:
        _log.info("pictures could not be scaled: %s", finished)
    return [found.get(number) for number in range(count)]
