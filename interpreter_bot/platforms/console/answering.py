"""Answers to `input()` from standard input, where it is not the script itself."""

from __future__ import annotations

import asyncio
import sys

from interpreter_bot import errors


class Answers:
    """Lines of standard input, one for each question."""

    def __init__(self, *, is_script: bool) -> None:
        """`is_script` says that standard input was read to its end as the code to run."""
        self._is_script = is_script

    async def next(self) -> str:
        """Wait for the next line.

        Raises:
            BotError: there is none.
        """
        line = "" if self._is_script else await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise errors.BotError("The code asked for input, and there is none to give.")
        return line.rstrip("\n")
