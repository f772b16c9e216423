"""What sessions expect of whoever shows their work: the way back up."""

from __future__ import annotations

from typing import Protocol

from interpreter_bot import values


class Saving(Protocol):
    """Takes the bytes of one artifact."""

    def write(self, data: bytes, /) -> object:
        """Take all of `data`. Called in a thread; OSError ends the copy."""

    def complete(self) -> None:
        """Let the artifact appear: all of it was written. OSError says that it cannot."""

    def close(self) -> None:
        """Let go; what was not completed is given up. Always called, and last."""


class Audience(Protocol):
    """Watches cells being run. Every call comes from the event loop, in order, cell by cell.

    What a method raises, beyond what it says here, means that nobody watches any more, such as
    BrokenPipeError: the kernel is killed at once and the exception is passed on.
    """

    def announcement(self, cell: int, text: str) -> None:
        """Hear a sentence about the session itself, such as that a kernel was lost."""

    def output(self, cell: int, output: values.Output) -> None:
        """See an output, at the moment it appears."""

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Answer running code. Cancelled when the code no longer waits.

        Raises:
            BotError: nobody can answer; the code is stopped, for this reason.
        """

    def save(self, cell: int, name: str) -> Saving | None:
        """Say where the bytes of a changed file go; None where they are not wanted.

        Raises:
            OSError: they can go nowhere; the file is left out, which is announced.
        """

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Hear of a file that the cell made or changed; its bytes went to what `save` gave."""

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Hear how the cell ended. The last call about it; comes for every cell."""
