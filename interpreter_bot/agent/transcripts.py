"""The transcript of one session, as the model sees it: grows during a turn, is never torn.

Whatever happens, also when a turn is cancelled in the middle of a call, `settled` leaves every
call answered: servers refuse to go on from anything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot.agent import fitting, messages, pictures

_QUOTED: Final = 120
_REMEMBERED: Final = 10
_REASONING_CHARACTERS: Final = 4 * 1024 * 1024


class Transcript:
    """What was said between a person, a model and us."""

    def __init__(self, earlier: Iterable[messages.Message] = ()) -> None:
        self._entries = list(earlier)
        self.settle("[Nothing is known of what became of this.]")

    @property
    def entries(self) -> tuple[messages.Message, ...]:
        """Everything, oldest first."""
        return tuple(self._entries)

    def tell(self, text: str, seen: Iterable[messages.Picture] = ()) -> None:
        """Add what a person wrote, and the pictures that came along; a turn begins here."""
        self._entries.append(messages.Told(text, tuple(seen)))
        self._entries = pictures.bounded(self._entries)

    def remark(self, text: str) -> None:
        """Add a word of our own to the model."""
        self._entries.append(messages.Told(text, is_ours=True))

    def say(
        self,
        text: str,
        calls: tuple[messages.Call, ...] = (),
        reasoning: messages.Reasoning | None = None,
    ) -> None:
        """Add what the model said."""
        if text or calls:
            self._entries.append(messages.Said(text, calls, reasoning))
            self._bound_reasoning()

    def answer(
        self, call: messages.Call, text: str, seen: tuple[messages.Picture, ...] = ()
    ) -> None:
        """Add what came of a call, and the pictures that it showed."""
        self._entries.append(messages.Answered(call.id, text or "[nothing]", seen))
        if seen:
            self._entries = pictures.bounded(self._entries)

    def settle(self, text: str, *, rest: str = "") -> None:
        """Answer every call that has no answer yet: the first with `text`, the others with `rest`.

        Without `rest`, all with the same.
        """
        said = [i for i, one in enumerate(self._entries) if isinstance(one, messages.Said)]
        last = self._entries[said[-1]] if said else None
        if not isinstance(last, messages.Said):
            return
        # Only what follows counts: some servers give the same ids at every step.
        later = self._entries[said[-1] :]
        answered = {one.call_id for one in later if isinstance(one, messages.Answered)}
        for call in last.calls:
            if call.id not in answered:
                self.answer(call, text)
                text = rest or text

    def replace(self, fit: fitting.Fit, summary: str) -> None:
        """Let go of what did not fit, and remember it as `summary`."""
        head = [messages.Told(summary, is_ours=True)] if summary else []
        self._entries = [*head, *fit.kept]

    def forget_reasoning(self, *, until: int | None = None) -> None:
        """Forget what was to be given back to providers, in the first `until` messages or all."""
        self._entries[:until] = [
            dataclasses.replace(one, reasoning=None) if isinstance(one, messages.Said) else one
            for one in self._entries[:until]
        ]

    def _bound_reasoning(self) -> None:
        """Let the older half of it go when it is too much, so that this is not done each time."""
        sizes = [
            len(one.reasoning.value) if isinstance(one, messages.Said) and one.reasoning else 0
            for one in self._entries
        ]
        excess = sum(sizes) - _REASONING_CHARACTERS
        if excess <= 0:
            return
        excess += _REASONING_CHARACTERS // 2
        for number, size in enumerate(sizes):
            excess -= size
            if excess <= 0:
                self.forget_reasoning(until=number + 1)
                return

    def forget_pictures(self) -> None:
        """Forget the pictures, one of which a model's server cannot read."""
        self._entries = list(pictures.without(self._entries))


def note(dropped: Sequence[messages.Message]) -> str:
    """Say what is left out where nobody could summarise it."""
    asked = [
        one.text if len(one.text) <= _QUOTED else f"{one.text[:_QUOTED]}…"
        for one in dropped
        if isinstance(one, messages.Told) and not one.is_ours
    ]
    # An earlier summary must not be lost when it falls out in its turn.
    earlier = [one.text for one in dropped if isinstance(one, messages.Told) and one.is_ours][:1]
    told = "; ".join(asked[-_REMEMBERED:])
    line = f"[{len(asked)} earlier requests are left out. The last of them: {told}]"
    return "\n".join([*(fitting.shortened(text, 2000) for text in earlier), line])


def readable(dropped: Sequence[messages.Message], most_characters: int) -> str:
    """Write messages as plain text, for somebody who is to summarise them."""
    lines = []
    for one in dropped:
        match one:
            case messages.Told():
                lines.append(f"{'Note' if one.is_ours else 'Person'}: {one.text}")
            case messages.Said():
                lines.append(f"Analyst: {one.text}")
                lines += [f"Code: {call.arguments}" for call in one.calls]
            case messages.Answered():
                lines.append(f"Output: {fitting.shortened(one.text, 600)}")
    return fitting.shortened("\n".join(lines), most_characters)
