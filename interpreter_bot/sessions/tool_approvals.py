"""Tools that a person let code of a session call again and again, as long as its Python lives."""

from __future__ import annotations

import collections
import dataclasses
from typing import Final

from interpreter_bot import values

_MAX_SESSIONS: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class ToolApproval:
    """A tool that a person allowed for a session.

    Attributes:
        person: who allowed it, and for whose code alone it holds.
        server: whose tool it is.
        function: the tool, as it is called in Python.
        digest: of its definition; another one was not allowed.
        others: whose code might have made such a call, too, when it was allowed. With one more,
            nothing is.
    """

    person: str
    server: str
    function: str
    digest: str
    others: frozenset[str] = frozenset()


class ToolApprovals:
    """What was allowed in the sessions of this process; a restart forgets it."""

    def __init__(self) -> None:
        self._allowed: collections.OrderedDict[
            values.SessionKey, tuple[str, frozenset[ToolApproval]]
        ] = collections.OrderedDict()

    def of(self, key: values.SessionKey, kernel_id: str) -> frozenset[ToolApproval]:
        """Return what was allowed to a session while it had this kernel."""
        known, allowed = self._allowed.get(key, ("", frozenset()))
        return allowed if known == kernel_id else frozenset()

    def add(self, key: values.SessionKey, kernel_id: str, approval: ToolApproval) -> None:
        """Note what a person allowed; what an earlier kernel was allowed is forgotten."""
        self._allowed[key] = kernel_id, self.of(key, kernel_id) | {approval}
        self._allowed.move_to_end(key)
        if len(self._allowed) > _MAX_SESSIONS:
            self._allowed.popitem(last=False)
