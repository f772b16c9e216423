"""The code of a past answer with its text output, which an answer omits and people can ask for.

Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.platforms.rendering import display_items, output_selection
from interpreter_bot.sessions import past_turns, turn_log
from interpreter_bot.wording import command_words

BUTTON_LABEL: Final = "Show code"
HEADING: Final = command_words.CODE_OF_ANSWER
FILE_NAME: Final = "code.py"
OUTPUT_HEADING: Final = "Output:"
OUTPUT_FILE_NAME: Final = "output.txt"
_MAX_NARRATION_CHARACTERS: Final = 280
_CAPABILITIES: Final = display_items.Capabilities(text_characters=10_000, text_lines=500)


@dataclasses.dataclass(frozen=True, slots=True)
class CodeRun:
    """Code that ran for an answer.

    Attributes:
        words: the model's words before the code, if they only announced it.
        code: the code.
        output: its text output, sanitized, without the last line end; shortened if very long.
    """

    words: str
    code: str
    output: str


def is_narration(words: str) -> bool:
    """Return whether words before code only announce it, such as "Let me look at the columns."."""
    return len(words.strip()) <= _MAX_NARRATION_CHARACTERS and "\n" not in words.strip()


def is_omitted(item: display_items.Item) -> bool:
    """Return whether answers in words omit an item: they omit all text except formulas."""
    if isinstance(item, display_items.CodeItem):
        return item.language != "latex"
    return isinstance(item, display_items.TextItem)


def find_turn(turns: Iterable[past_turns.PastTurn], turn_id: str) -> past_turns.PastTurn:
    """Return the turn with an id.

    Raises:
        BotError: it is not among these turns.
    """
    for turn in turns:
        if str(turn.record.id) == turn_id:
            return turn
    raise errors.BotError(command_words.ANSWER_TOO_OLD)


def list_runs(turn: past_turns.PastTurn) -> Sequence[CodeRun]:
    """Return all code that ran in a turn.

    Raises:
        BotError: no code ran in it.
    """
    words = ""
    code_runs: list[CodeRun] = []
    log = turn_log.TurnLog()
    for event in turn.events:
        log.apply(event)
    for part in log.parts:
        match part:
            case turn_log.StepText(text=text):
                words = text.strip() if is_narration(text) else ""
            case turn_log.Cell():
                code_runs.append(CodeRun(words, part.code, _output_text(part)))
                words = ""
    if not code_runs:
        raise errors.BotError(command_words.ANSWER_TOO_OLD)
    return code_runs


def _output_text(cell: turn_log.Cell) -> str:
    items = output_selection.OutputSelector(_CAPABILITIES).choose(cell.number, cell.screen.items)
    texts = (
        item.text
        for item in items
        if isinstance(item, display_items.TextItem | display_items.CodeItem) and is_omitted(item)
    )
    return "\n".join(texts)


def make_files(code_runs: Sequence[CodeRun]) -> dict[str, bytes]:
    """Return the code and the output of runs as files, by name."""
    outputs = [run.output for run in code_runs if run.output]
    contents = {FILE_NAME: _file_content([run.code for run in code_runs])}
    return contents | ({OUTPUT_FILE_NAME: _file_content(outputs)} if outputs else {})


def _file_content(texts: Sequence[str]) -> bytes:
    """Join texts as the cells of one file; a single text needs no cell marker."""
    text = texts[0] if len(texts) == 1 else "\n\n".join(f"# %%\n{text}" for text in texts)
    return text.encode("utf-8", "replace")
