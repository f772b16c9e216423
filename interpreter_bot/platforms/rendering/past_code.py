"""The code of a past answer, its printed text and the brief words between, which the answer omits.

It is shown on request. Pure.
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
        words: the model's words before it, if they were brief.
        output: its text output, harmless, without its last line end; shortened if very long.
    """

    words: str
    code: str
    output: str


def is_narration(words: str) -> bool:
    """Return whether words before code only announce it, such as "Let me look at the columns."."""
    return len(words.strip()) <= _NARRATION_CHARACTERS and "\n" not in words.strip()


def is_omitted(item: display_items.Item) -> bool:
    """Return whether an answer in words omits an item, which is text and no formula."""
    if isinstance(item, display_items.CodeItem):
        return item.language != "latex"
    return isinstance(item, display_items.TextItem)


def turn_of(turns: Iterable[past_turns.PastTurn], turn_id: str) -> past_turns.PastTurn:
    """Return a turn of a session.

    Raises:
        BotError: it is not among the latest.
    """
    for turn in turns:
        if str(turn.record.id) == turn_id:
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
                code_runs.append(RunCode(words, part.code, _output_text(part)))
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


def files(code_runs: Sequence[RunCode]) -> dict[str, bytes]:
    """Return the code and the output of runs as files, by name."""
    outputs = [run.output for run in code_runs if run.output]
    contents = {FILE_NAME: _file_content([run.code for run in code_runs])}
    return contents | ({OUTPUT_FILE_NAME: _file_content(outputs)} if outputs else {})


def _file_content(texts: Sequence[str]) -> bytes:
    """Join texts as cells of one file; a single text is the whole file."""
    text = texts[0] if len(texts) == 1 else "\n\n".join(f"# %%\n{text}" for text in texts)
    return text.encode("utf-8", "replace")
