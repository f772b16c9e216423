"""What people think of answers: each opinion under its turn, and how many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import values

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_TALLY: Final = "feedback"
_KINDS: Final = ("up", "down")


class Opinions:
    """Keeps them as choices: of the person for the turn, and of the workspace for the tally.

    Two replicas that count at the same moment may lose one in the tally; the opinions themselves
    are each kept under a name of their own.
    """

    def __init__(self, held: conversations.Conversations) -> None:
        self._conversations = held
        self._counting = asyncio.Lock()

    async def note(self, team: str, user: str, turn: str, opinion: str) -> None:
        """Keep what somebody thinks of a turn, "up" or "down", instead of what they did before."""
        held = self._conversations
        own = values.Scope("slack", team, person=user)
        name = f"{_TALLY}:{turn}"
        async with self._counting:
            before = (await held.choices(own)).get(name)
            if opinion not in _KINDS or before == opinion:
                return
            counted = await self._tally(team)
            counted[opinion] += 1
            if before in counted:
                counted[str(before)] -= 1
            await held.choose(own, name, opinion)
            await held.choose(values.Scope("slack", team), _TALLY, counted)

    async def counted(self, team: str) -> tuple[int, int]:
        """Say how many answers were good, and how many bad."""
        tally = await self._tally(team)
        return tally["up"], tally["down"]

    async def _tally(self, team: str) -> dict[str, int]:
        chosen: Any = (await self._conversations.choices(values.Scope("slack", team))).get(_TALLY)
        known = chosen if isinstance(chosen, Mapping) else {}
        return {kind: max(int(known.get(kind, 0)), 0) for kind in _KINDS}
