"""Words about executions and turns, each in one line. Pure."""

from __future__ import annotations

from typing import Final

from interpreter_bot import values
from interpreter_bot.platforms.slack import answers
from interpreter_bot.sessions import ports
from interpreter_bot.text import formatting

TITLES: Final = {
    values.Ending.OK: "Ran Python",
    values.Ending.ERROR: "Ran Python: it failed",
    values.Ending.TIMED_OUT: "Python took too long",
    values.Ending.OUT_OF_MEMORY: "Python ran out of memory",
    values.Ending.CRASHED: "Python crashed",
    values.Ending.STOPPED: "Stopped Python",
    values.Ending.REFUSED: "Python was not run",
}
"""What an execution is called when it is over."""


def short(code: str) -> str:
    """Take as much of code as a task holds, whole lines."""
    lines = code.strip().splitlines()
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) > answers.FIELD_CHARACTERS - 10:
            return "\n".join([*kept, "…"])
        kept.append(line)
    return "\n".join(kept)


def small_print(end: ports.End, spent: ports.Spent | None) -> str:
    """Say what an answer took; with a model, what that used, and what to think of it."""
    said = [formatting.duration(end.seconds)]
    if spent is not None:
        said.append(f"{spent.input_tokens + spent.output_tokens:,} tokens")
        said.append("AI can be wrong: check what matters")
    return " · ".join(said)
