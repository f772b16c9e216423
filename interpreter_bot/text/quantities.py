"""Format sizes, durations, counts and one-line texts, the same on every platform. Pure."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def size(byte_count: float) -> str:
    """Format a number of bytes to three digits, such as "1.75 GiB", "977 KiB" or "12 bytes"."""
    for unit, factor in _UNITS:
        number = byte_count / factor
        if number >= 1:
            return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"
    return count(round(byte_count), "byte")


def duration(seconds: float) -> str:
    """Format a duration, such as "0.04 s", "12.3 s", "2 min 5 s" or "1 h 30 min"."""
    if seconds < 59.95:
        return f"{round(seconds, 1 if seconds >= 1 else 2):g} s"
    minutes, remaining_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (remaining_seconds if not hours else 0, "s"))
    return " ".join(f"{number:,} {unit}" for number, unit in parts if number)


def count(number: int, thing: str) -> str:
    """Format a number of things, such as "1 file" or "1,200 files"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def one_line(text: str, max_characters: int) -> str:
    """Fit a text into one line; a long one is cut and ends in "…"."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"
