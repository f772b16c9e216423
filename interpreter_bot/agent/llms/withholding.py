"""Words that nobody hears until it is known what they are worth."""

from __future__ import annotations

from interpreter_bot.agent import ports


class Withheld:
    """Passes on what a model says once it has begun to write code, or once it is told to.

    A turn that is stopped meanwhile shows what there was, as every turn does.
    """

    def __init__(self, hearing: ports.Hearing) -> None:
        self._hearing = hearing
        self._held: list[str] | None = []

    def text(self, delta: str) -> None:
        """Keep words back."""
        if self._held is None:
            self._hearing.text(delta)
        else:
            self._held.append(delta)

    def code(self, delta: str) -> None:
        """Let go: it goes on to compute."""
        self.release()
        self._hearing.code(delta)

    def notice(self, sentence: str) -> None:
        """Pass it on."""
        self._hearing.notice(sentence)

    def progress(self, text: str, share: float | None) -> None:
        """Pass it on."""
        self._hearing.progress(text, share)

    def drop(self) -> None:
        """Forget what is held back, and hold back again."""
        self._held = []

    def release(self) -> None:
        """Pass on what is held back, and all that follows."""
        held, self._held = self._held, None
        if held:
            self._hearing.text("".join(held))
