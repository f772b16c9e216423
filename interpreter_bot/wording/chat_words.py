"""Answers in chats: how they go on, and what could not be shown."""

from __future__ import annotations

from typing import Final

ONE_MOMENT: Final = "one moment …"
WRITING_CODE: Final = "writing code …"
WHOLE_ANSWER: Final = "The whole answer"
PART_REFUSED: Final = "⚠️ This part of the answer was refused here."
CODE_PARTLY_HIDDEN: Final = (
    "You cannot see all of the code here: press Edit to see it, or refuse it."
)
FILE_REFUSED: Final = "it was refused"
NOT_PACKED: Final = "it could not be compressed"


def left_in_file(characters: int) -> str:
    return f"… {characters:,} characters are only in the file; the end follows."


def table_as_csv(number: int) -> str:
    return f"Table {number} as CSV"
