"""What an answer in words leaves out of how it came about: code, printed text, brief words between.
It is shown to whoever asks. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.platforms.rendering import display_items, output_selection
from interpreter_bot.sessions import past_turns, turn_log
from interpreter_bot.wording import command_words

BUTTON: Final = "Show code"
ABOUT: Final = command_words.CODE_OF_ANSWER
FILE_NAME: Final = "code.py"
OUTPUT: Final = "Output:"
OUTPUT_FILE_NAME: Final = "output.txt"
_NARRATION_CHARACTERS: Final = 280
_CAPABILITIES: Final = display_items.Capabilities(text_characters=10_000, text_lines=500)


@dataclasses.dataclass(frozen=True, slots=True)
class RunCode:
    """Code that an answer ran.

    Attributes:
        words: what the model said before it, if that was brief.
        output: text that it showed, harmless, without its last line end; shortened if very long.
    """

    words: str
    code: str
    output: str


def is_narration(words: str) -> bool:
    """Return whether words before code only announce it, such as "Let me look at the columns."."""
    return len(words.strip()) <= _NARRATION_CHARACTERS and "\n" not in words.strip()


def is_left_out(item: display_items.Item) -> bool:
    """Return whether an answer in words leaves out an item: it is text, and no formula."""
    if isinstance(item, display_items.CodeItem):
        return item.language != "latex"
    return isinstance(item, display_items.TextItem)


def turn_of(past: Iterable[past_turns.PastTurn], turn_id: str) -> past_turns.PastTurn:
    """Return a turn of a session.

    Raises:
        BotError: it is not among the latest.
    """
    for turn in past:
        if str(turn.id) == turn_id:
            return turn
    raise errors.BotError(command_words.ANSWER_TOO_OLD)


def runs(turn: past_turns.PastTurn) -> Sequence[RunCode]:
    """Return all code that a turn ran.

    Raises:
        BotError: it ran none.
    """
    words = ""
    code_runs: list[RunCode] = []
    log = turn_log.TurnLog()
    for event in turn.events:
        log.apply(event)
    for part in log.parts:
        match part:
            case turn_log.Words(text=text):
                words = text.strip() if is_narration(text) else ""
            case turn_log.Cell():
                code_runs.append(RunCode(words, part.code, _text(part)))
                words = ""
    if not code_runs:
        raise errors.BotError(command_words.ANSWER_TOO_OLD)
    return code_runs


def _text(cell: turn_log.Cell) -> str:
    items = output_selection.OutputSelector(_CAPABILITIES).choose(cell.number, cell.screen.items)
    texts = (
        item.text
        for item in items
        if isinstance(item, display_items.TextItem | display_items.CodeItem) and is_left_out(item)
    )
    return "\n".join(texts)


def files(code_runs: Sequence[RunCode]) -> dict[str, bytes]:
    """Return what was run as files by name: the code, of a single run as it ran; and its output."""
    outputs = [run.output for run in code_runs if run.output]
    contents = {FILE_NAME: _join([run.code for run in code_runs])}
    return contents | ({OUTPUT_FILE_NAME: _join(outputs)} if outputs else {})


def _join(texts: Sequence[str]) -> bytes:
    """Join texts to the content of one file; a single one is all of it."""
    text = texts[0] if len(texts) == 1 else "\n\n".join(f"# %%\n{text}" for text in texts)
    return text.encode("utf-8", "replace")
