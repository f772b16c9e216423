"""Pictures as pixels for terminals that take no files: in sixel, or as half blocks of two colours.

`png_decoder` gives the pixels, in a process of its own. What it writes is measured here: a decoder
that a picture had taken over could still write numbers of colours only, and no escape sequence.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
import struct
import subprocess
import sys
from typing import Final

from interpreter_bot.platforms.console import png_decoder

_log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">HHH")
_COLOUR: Final = struct.Struct("BBB")
_SECONDS: Final = 10.0
_MOST_COLOURS: Final = 256
_BAND: Final = 6
_UPPER_HALF: Final = "\u2580"
# Six rows of a pixel, a bit each, as a letter.
_SIXELS: Final = bytes([63 + (bits & 63) for bits in range(256)])
_RUN: Final = re.compile(r"(.)\1{3,}", re.DOTALL)
# The six steps of red, green and blue among 256 colours, which begin at number 16.
_STEPS: Final = (0, 95, 135, 175, 215, 255)
_CUBE: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Raster:
    """The pixels of a picture.

    Attributes:
        width: in pixels.
        height: in pixels.
        colours: red, green and blue of each, from 0 to 255; at most 256.
        pixels: the number of a colour for each, row by row.
    """

    width: int
    height: int
    colours: tuple[tuple[int, int, int], ...]
    pixels: bytes


def decoded(png: bytes, *, columns: int, lines: int) -> Raster | None:
    """Decode a PNG in a process of its own, which may take seconds.

    Args:
        png: of code, hostile.
        columns: the most pixels in a row; it is made smaller where it is larger.
        lines: the most rows.

    Returns:
        Its pixels; None if it cannot be shown.
    """
    # Nothing of the bot is there: no variable, no descriptor, no package.
    command = [sys.executable, "-I", "-S", png_decoder.__file__, f"{columns}", f"{lines}"]
    try:
        done = subprocess.run(
            command, input=png, capture_output=True, env={}, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.info("a picture could not be decoded", exc_info=error)
        return None
    return read(done.stdout, columns=columns, lines=lines)


def read(raster: bytes, *, columns: int, lines: int) -> Raster | None:
    """Measure what a decoder wrote; None if it is not what was asked for."""
    if len(raster) < _HEAD.size:
        return None
    width, height, count = _HEAD.unpack_from(raster)
    start = _HEAD.size + 3 * count
    pixels = raster[start:]
    if not (0 < width <= columns and 0 < height <= lines and 0 < count <= _MOST_COLOURS):
        return None
    if len(pixels) != width * height or max(pixels) >= count:
        return None
    colours = tuple(_COLOUR.iter_unpack(raster[_HEAD.size : start]))
    return Raster(width, height, colours, pixels)


def sixel(raster: Raster) -> str:
    """Write pixels in the protocol of the VT340: bands of six rows, one colour after the other."""
    parts = [f'\x1bPq"1;1;{raster.width};{raster.height}']
    for number, colour in enumerate(raster.colours):
        red, green, blue = (round(value / 2.55) for value in colour)
        parts.append(f"#{number};2;{red};{green};{blue}")
    size = raster.width * _BAND
    for start in range(0, len(raster.pixels), size):
        band = raster.pixels[start : start + size]
        rows = [band[at : at + raster.width] for at in range(0, len(band), raster.width)]
        parts.append("$".join(_of_colour(rows, number) for number in sorted(set(band))) + "-")
    return "".join(parts) + "\x1b\\\n"


def _of_colour(rows: list[bytes], number: int) -> str:
    """Write where one colour is within a band."""
    total = 0
    for place, row in enumerate(rows):
        # A bit a pixel, the lowest for the uppermost row; rows never have the same bit.
        bits = bytearray(256)
        bits[number] = 1 << place
        total |= int.from_bytes(row.translate(bits), "big")
    there = total.to_bytes(len(rows[0]), "big").translate(_SIXELS).decode("ascii")
    return f"#{number}" + _RUN.sub(lambda run: f"!{len(run[0])}{run[1]}", there.rstrip("?"))


def half_blocks(raster: Raster, *, is_true_colour: bool) -> str:
    """Write two rows of pixels as one line: the upper in the foreground, the lower behind it."""
    rows = [
        raster.pixels[start : start + raster.width]
        for start in range(0, len(raster.pixels), raster.width)
    ]
    codes = [_code(colour, is_true_colour=is_true_colour) for colour in raster.colours]
    lines = []
    for upper, lower in itertools.zip_longest(rows[::2], rows[1::2]):
        parts = []
        pairs = zip(upper, lower or upper, strict=True)
        for (above, below), run in itertools.groupby(pairs):
            # Of an odd number of rows, the last has nothing below it.
            behind = f";48;{codes[below]}" if lower else ""
            parts.append(f"\x1b[38;{codes[above]}{behind}m" + _UPPER_HALF * len(list(run)))
        lines.append("".join(parts) + "\x1b[0m\n")
    return "".join(lines)


def _code(colour: tuple[int, int, int], *, is_true_colour: bool) -> str:
    """Return what follows 38 or 48 in an escape sequence for a colour."""
    if is_true_colour:
        return "2;{};{};{}".format(*colour)
    red, green, blue = (
        min(range(len(_STEPS)), key=lambda step: abs(_STEPS[step] - value)) for value in colour
    )
    return f"5;{_CUBE + 36 * red + 6 * green + blue}"
