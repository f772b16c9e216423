"""The whole of a table of which people saw the head, as a file of the workspace."""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.kernels import executions

_GONE: Final = "That table is no longer there. Run its code again to get all of it."
_FAILED: Final = "The table could not be saved: {reason}"
_SECONDS: Final = 60.0


async def save_table(kernel: executions.Kernel, handle: str) -> str:
    """Let a kernel write a table that it showed; returns the file's name.

    Args:
        kernel: the one that showed it, or its successor, which knows nothing of it.
        handle: see `values.Table.handle`.

    Raises:
        BotError: it cannot be had; the sentence says why.
    """
    name = f"table-{handle}.csv"
    shown: list[values.Output] = []
    code = f"get_ipython().save_table({handle!r}, {name!r})"
    finished = await kernel.execute(code, show=shown.append, seconds=_SECONDS)
    last = shown[-1] if shown else None
    if finished.ending is values.Ending.OK and last is not None and last.plain == "True":
        return name
    if isinstance(last, values.Error):
        if last.name == "FileExistsError":
            return name
        raise errors.BotError(_FAILED.format(reason=last.message or last.name))
    if finished.reason:
        raise errors.BotError(_FAILED.format(reason=finished.reason))
    raise errors.BotError(_GONE)
