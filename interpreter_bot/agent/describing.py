"""Outputs, files and endings in words for a model, which sees no screen. Pure.

An output that says little, such as `<Figure size 640x480>`, makes small models run the same code
again and again; so what the person saw is told in a sentence.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.agent import fitting, messages, prompting

_EYES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PICTURE_BYTES: Final = 4 * 1024 * 1024
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_REPR: Final = re.compile(r"<Figure size [^>]*>|<Axes[^>]*>|Figure\(\S+\)")
_TABLE_ROWS: Final = 20
_SILENT: Final = (
    "[The code ran to its end without an error and printed nothing. What it was to save or to "
    "compute is done; print what you need to know.]"
)
# Or else a model that cannot see tells what it believes to be in the picture.
_ONLY_DRAWN: Final = "[Nothing was printed: name no figures but those you have seen.]"
FAILED: Final = (
    "[The code failed with the error above. Take another way to the result, in changed code.]"
)
"""How the output of code that raised ends."""
_FILES: Final = 100


class Gathering:
    """Collects the outputs of one execution as they would stand on a screen at its end."""

    def __init__(self) -> None:
        self._outputs: list[values.Output] = []
        self._is_clearing = False

    def show(self, output: values.Output) -> None:
        """Take the next output."""
        if isinstance(output, values.Clear):
            self._is_clearing = output.wait
            if not output.wait:
                self._outputs.clear()
            return
        if self._is_clearing:
            self._outputs.clear()
            self._is_clearing = False
        if isinstance(output, values.Display) and output.is_update and self._replace(output):
            return
        last = self._outputs[-1] if self._outputs else None
        if (
            isinstance(output, values.Text)
            and isinstance(last, values.Text)
            and last.stream == output.stream
        ):
            output = values.Text(output.stream, last.text + output.text)
            self._outputs.pop()
        self._outputs.append(output)

    def _replace(self, update: values.Shown) -> bool:
        for place, output in enumerate(self._outputs):
            if isinstance(output, values.Display) and output.display_id == update.display_id:
                self._outputs[place] = update
                return True
        return False

    @property
    def outputs(self) -> Sequence[values.Output]:
        """What stands on the screen."""
        return self._outputs

    @property
    def error(self) -> values.Error | None:
        """The exception that ended the execution, if one did."""
        return next((one for one in reversed(self._outputs) if isinstance(one, values.Error)), None)

    def text(self, finished: values.Finished, most_characters: int) -> str:
        """Say everything: what was shown, then how it ended."""
        shown = "\n".join(filter(None, (_said(one).strip("\n") for one in self._outputs)))
        if self._outputs and all(isinstance(one, values.Image) for one in self._outputs):
            shown = f"{shown}\n{_ONLY_DRAWN}"
        # The way it ended must survive the cut, and the traceback is at the tail of the rest.
        return "\n".join(
            filter(None, (fitting.shortened(shown, most_characters), _ended(finished, shown)))
        )

    def pictures(self, limits: settings.Turn) -> tuple[messages.Picture, ...]:
        """Return the last pictures that a model can look at."""
        seen = [
            messages.Picture(one.mime, one.data)
            for one in self._outputs
            if isinstance(one, values.Image)
            and one.mime in _EYES
            and len(one.data) <= _PICTURE_BYTES
        ]
        return tuple(seen[max(len(seen) - limits.pictures, 0) :])


def _said(output: values.Output) -> str:
    match output:
        case values.Text():
            return _overwritten(output.text)
        case values.Image():
            kind = output.mime.removeprefix("image/").removesuffix("+xml")
            size = png_size(output.data) if kind == "png" else ""
            return f"[A picture was shown to the person ({' '.join(filter(None, (kind, size)))}).]"
        case values.Table():
            return table(output)
        case values.Html():
            told = "" if _REPR.search(output.plain) else output.plain
            return f"[An interactive display was shown to the person.]\n{told}"
        case values.Latex():
            return output.latex
        case values.Json():
            return output.json
        case values.Result():
            return _REPR.sub("[a figure object]", output.plain)
        case _:
            return output.plain


def _overwritten(text: str) -> str:
    """Keep of each line what stands there after its carriage returns, as of a progress bar."""
    if "\r" not in text:
        return text
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def _ended(finished: values.Finished, shown: str) -> str:
    match finished.ending:
        case values.Ending.OK:
            return "" if shown else _SILENT
        case values.Ending.ERROR:
            return FAILED
        case values.Ending.REFUSED:
            return f"[Nothing was run: {finished.reason}]"
        case ending:
            lost = " All variables are gone; files are kept." if finished.kernel_lost else ""
            return f"[The code was ended: {ending}. {finished.reason}{lost}]"


def png_size(data: bytes) -> str:
    """Read width and height, such as `640x480`; nothing where it is no PNG."""
    if len(data) < 24 or not data.startswith(_PNG):
        return ""
    width, height = struct.unpack(">II", data[16:24])
    return f"{width}x{height}"


def table(shown: values.Table) -> str:
    """Write the head of a table as aligned text, with how much there is in all."""
    rows = [shown.columns, *shown.rows[:_TABLE_ROWS]]
    lines = [" | ".join(cell.replace("\n", " ")[:60] for cell in row) for row in rows]
    told = f"[A table of {shown.row_count:,} rows x {shown.column_count:,} columns was shown"
    count = len(rows) - 1
    rest = f"; its first {count} rows are above.]" if count < shown.row_count else "; this is all.]"
    return "\n".join([*lines, f"{told} to the person{rest}"])


def file(name: str, size_bytes: int, *, kind: str = "", details: str = "") -> str:
    """Describe a file that a person sent.

    Args:
        name: its name in the workspace.
        size_bytes: its size.
        kind: its type in words or as MIME, where it is known.
        details: for tables, columns, types and first rows.
    """
    about = ", ".join(filter(None, (prompting.sized(size_bytes), kind)))
    line = f"[The person sent the file {name!r} ({about}); it is at /mnt/data/{name}.]"
    return "\n".join(filter(None, (line, details.strip())))


def files(found: Iterable[values.FileInfo]) -> str:
    """List a workspace."""
    ordered = sorted(found, key=lambda info: info.name)
    if not ordered:
        return "[There are no files in /mnt/data.]"
    lines = [f"{info.name}  {prompting.sized(info.size_bytes)}" for info in ordered[:_FILES]]
    if len(ordered) > _FILES:
        lines.append(f"[… and {len(ordered) - _FILES:,} more]")
    return "\n".join(lines)


def content(data: bytes, *, start: int, most_bytes: int) -> str:
    """Show part of a file."""
    if b"\0" in data[:1024]:
        return "[This is not a text file. Use run_code to look at it.]"
    text = data.decode("utf-8", "replace")
    if not text:
        return "[The file is empty, or ends before that.]"
    if len(data) < most_bytes:
        return text
    return f"{text}\n[There may be more: go on with start={start + len(data)}.]"
