"""Standard input of a kernel, which asks a person, like `input()`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator


class StandardInput(io.TextIOBase):
    """`sys.stdin` of a kernel; reading a line, or everything, reads one answer."""

    encoding = "utf-8"
    errors = "replace"
    name = "stdin"
    mode = "r"

    def __init__(self, ask: Callable[[str], str]) -> None:
        """`ask` returns a person's answer, or raises EOFError."""
        self._ask = ask
        self._unread_text = ""

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """Return the descriptor that programs of code read from, which is empty."""
        return 0

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        """Return the next line of the last answer, or of a new one; empty if nobody answers."""
        self._ask_if_empty()
        end = self._unread_text.find("\n") + 1
        end = end if size < 0 else min(size, end)
        line, self._unread_text = self._unread_text[:end], self._unread_text[end:]
        return line

    def read(self, size: int | None = -1) -> str:
        """Return the rest of the last answer, or a new answer."""
        self._ask_if_empty()
        end = len(self._unread_text) if size is None or size < 0 else size
        text, self._unread_text = self._unread_text[:end], self._unread_text[end:]
        return text

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self.read().splitlines(keepends=True))

    def readlines(self, hint: int = -1) -> list[str]:  # type: ignore[override]
        return list(self)

    def close(self) -> None:
        """Stay open."""

    def _ask_if_empty(self) -> None:
        if not self._unread_text:
            try:
                self._unread_text = self._ask("") + "\n"
            except EOFError:
                return
