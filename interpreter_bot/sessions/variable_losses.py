"""Detect that a session has lost its variables, so that people and model learn of it once.

After each execution the names are written into the session's row in the store, with the kernel
that holds them. A turn that finds another kernel there has lost them: by idleness, eviction, a
crash or a restart of the bot. It is said once, to people and to the model. Why a kernel ended is
added to the row when it ends, unless the bot ends with it.

The row is `records.Session.kernel`: {"kernel": id, "bot": id, "names": […], "more": number,
"reason": sentence, empty as long as the kernel lives}. An empty document means that nothing is
held, or that the loss was told. What brings variables back leaves the row alone and names the new
kernel in it; what it could not bring back is a loss with fewer names.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.kernels import executions
from interpreter_bot.store import databases

_log = logging.getLogger(__name__)

_RESTARTED: Final = "The bot was restarted."
_LET_GO: Final = "It was let go."
_SHOWN: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class VariableLoss:
    """Variables that are gone.

    Attributes:
        names: of them, the latest first; empty if unknown.
        more: how many there were besides.
        reason: a sentence.
    """

    names: tuple[str, ...]
    more: int
    reason: str

    @property
    def sentence(self) -> str:
        """Return one line for people."""
        listed = _listed(self.names[:_SHOWN], self.more + max(len(self.names) - _SHOWN, 0))
        return (
            "A new Python was started, without the variables of the earlier one"
            f"{f' ({listed})' if listed else ''}. {self.reason} Files in /mnt/data are kept."
        )

    @property
    def remark(self) -> str:
        """Return the same for a model."""
        listed = _listed(self.names, self.more)
        return (
            f"[A new Python was started, because the earlier one is gone. {self.reason} What was "
            f"defined or imported there is gone{f': {listed}' if listed else ''}. Define and "
            "import again what you need of it, even where that has run before. Files in /mnt/data "
            "are kept.]"
        )


class Variables:
    """The variables that a session's kernel holds.

    Args:
        kept: the content of the row.
        bot: id of this process of the bot.
        note: writes the new content of the row.
    """

    def __init__(
        self, kept: Mapping[str, Any], bot: str, note: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._row = kept
        self._bot = bot
        self._note = note

    def lost(self, kernel: executions.Kernel | None) -> VariableLoss | None:
        """Return what is gone, once; None if nothing is.

        Args:
            kernel: the one that the session has now, alive or not.
        """
        row = self._row
        names, reason = tuple(row.get("names", ())), row.get("reason", "")
        is_same = kernel is not None and kernel.id == row.get("kernel")
        if not (names or reason) or (is_same and kernel is not None and kernel.is_alive):
            return None
        if is_same and kernel is not None:
            reason = kernel.loss_reason
        known = _LET_GO if row.get("bot") == self._bot else _RESTARTED
        self._set({})
        return VariableLoss(names, row.get("more", 0), reason or known)

    def ran(self, kernel: executions.Kernel, *, is_lost: bool) -> None:
        """Record the variables of a kernel after an execution, or those lost when it died of it."""
        space = kernel.namespace
        row = {
            "kernel": kernel.id,
            "bot": self._bot,
            "names": list(space.names),
            "more": space.more,
            "reason": kernel.loss_reason if is_lost else "",
        }
        if row != self._row:
            self._set(row)

    def _set(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._note(row)


async def note_loss(
    database: databases.Database, address: str, kernel: executions.Kernel, reason: str
) -> None:
    """Record why a session's kernel ended, in case the bot ends as well."""
    try:
        session = await database.sessions.find(values.key(address))
        if session is None or session.kernel.get("kernel") != kernel.id:
            return
        row = {**session.kernel, "reason": reason}
        if row["names"]:
            await database.sessions.note_kernel(session.id, row, instead_of=session.kernel)
    except errors.StoreError:
        _log.exception("why a kernel ended could not be recorded")


def _listed(names: tuple[str, ...], more: int) -> str:
    listed = ", ".join(names)
    return f"{listed} and {more:,} more" if listed and more else listed
