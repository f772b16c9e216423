"""Describe outputs, files and endings in words for a model, which sees no screen. Pure.

An output that says little, such as `<Figure size 640x480>`, makes small models repeat the same
code. So a sentence describes what the person saw.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from interpreter_bot import values
from interpreter_bot.agent import context_windows, picture_selection
from interpreter_bot.text import output_screens, quantities, shortened_output

_FIGURE_REPR: Final = re.compile(r"<Figure size [^>]*>|<Axes[^>]*>|Figure\(\S+\)")
_MAX_TABLE_ROWS: Final = 20
_VARIABLES_LOST: Final = (
    "All variables are gone, unless the next run says which are back; files are kept."
)
_NO_OUTPUT: Final = (
    "[The code ran to its end without an error and printed nothing. What it was to save or to "
    "compute is done; print what you need to know.]"
)
# Without this note, a model that cannot see images invents the content of the picture.
_ONLY_DRAWN: Final = "[Nothing was printed: name no figures but those you have seen.]"
CODE_FAILED: Final = (
    "[The code failed with the error above. Take another way to the result, in changed code.]"
)
"""The last line of the output of code that raised."""
_IN_BACKGROUND: Final = (
    "[It still runs, and goes on in the background. The person sees how it goes, and is told when "
    "it is done, with its files; you are told in a later turn. Until then no other code can run. "
    "Say in a sentence what is being computed, and end your answer.]"
)


def find_error(outputs: Sequence[output_screens.VisibleOutput]) -> values.Error | None:
    """Find the exception that ended an execution, if any."""
    return next((output for output in reversed(outputs) if isinstance(output, values.Error)), None)


def describe_execution(
    outputs: Sequence[output_screens.VisibleOutput], finished: values.Finished, max_characters: int
) -> str:
    """Describe an execution: its screen, then how it ended."""
    screen_text = _write_screen(outputs, max_characters)
    if outputs and all(isinstance(output, values.Image) for output in outputs):
        screen_text = f"{screen_text}\n{_ONLY_DRAWN}"
    # Only the screen is shortened. A traceback survives, as it is at the screen's end.
    return "\n".join(
        filter(
            None,
            (
                context_windows.shorten(screen_text, max_characters),
                _ending_note(finished, screen_text),
            ),
        )
    )


def _write_screen(outputs: Sequence[output_screens.VisibleOutput], max_characters: int) -> str:
    """Return a screen as text; long streams are cut in the middle."""
    texts = [_describe(output).strip("\n") for output in outputs]
    text_indexes = [
        index for index, output in enumerate(outputs) if isinstance(output, values.Text)
    ]
    excess = sum(map(len, texts)) - max_characters
    if excess > 0 and text_indexes:
        pieces = [
            shortened_output.PrintedPiece(output.stream, output.text)
            for output in outputs
            if isinstance(output, values.Text)
        ]
        room = max(sum(len(output.text) for output in pieces) - excess, max_characters // 2)
        shortened = shortened_output.shorten(pieces, max_characters=room)
        for index, text in zip(text_indexes, shortened, strict=True):
            texts[index] = text.strip("\n")
    return "\n".join(filter(None, texts))


def _describe(output: output_screens.VisibleOutput) -> str:
    match output:
        case values.Image():
            kind = output.mime.removeprefix("image/").removesuffix("+xml")
            size = picture_selection.png_size(output.data)
            kind_and_size = f"{kind} {size[0]}x{size[1]}" if size else kind
            return f"[A picture was shown to the person ({kind_and_size}).]"
        case values.Table():
            return describe_table(output)
        case values.Html():
            text = "" if _FIGURE_REPR.search(output.plain) else output.plain
            return f"[An interactive display was shown to the person.]\n{text}"
        case values.Latex():
            return output.latex
        case values.Json():
            return output.json
        case values.Result():
            return _FIGURE_REPR.sub("[a figure object]", output.plain)
        case _:
            return output.plain


def _ending_note(finished: values.Finished, screen_text: str) -> str:
    match finished.ending:
        case values.Ending.OK:
            return "" if screen_text else _NO_OUTPUT
        case values.Ending.ERROR:
            return CODE_FAILED
        case values.Ending.REFUSED:
            return f"[Nothing was run: {finished.reason}]"
        case values.Ending.BACKGROUND:
            return _IN_BACKGROUND
        case ending:
            lost = _VARIABLES_LOST if finished.kernel_lost else ""
            details = " ".join(filter(None, (f"{ending}.", finished.reason, lost)))
            return f"[The code was ended: {details}]"


def describe_table(display: values.Table) -> str:
    """Format the head of a table as aligned text, with its full size."""
    rows = [display.columns, *display.rows[:_MAX_TABLE_ROWS]]
    lines = [" | ".join(cell.replace("\n", " ")[:60] for cell in row) for row in rows]
    size_note = (
        f"[A table of {display.row_count:,} rows x {display.column_count:,} columns was shown"
    )
    count = len(rows) - 1
    rows_note = (
        f"; its first {count} rows are above.]" if count < display.row_count else "; this is all.]"
    )
    return "\n".join([*lines, f"{size_note} to the person{rows_note}"])


def describe_file(name: str, size_bytes: int, *, kind: str = "", details: str = "") -> str:
    """Describe a file that a person sent.

    Args:
        name: its name in the workspace.
        size_bytes: its size.
        kind: its type in words or as MIME, if known.
        details: of a table, its columns, types and first rows.
    """
    size_and_kind = ", ".join(filter(None, (quantities.size(size_bytes), kind)))
    if not size_bytes:
        details = "The file is empty: there is nothing in it to work with. Tell the person so."
    line = f"[The person sent the file {name!r} ({size_and_kind}); it is at /mnt/data/{name}.]"
    return "\n".join(filter(None, (line, details.strip())))
