"""A program that turns a PNG into the few pixels and colours that a terminal has room for.

It reads the PNG from standard input, and is given the most columns and lines of pixels. It writes
width, height and number of colours (two bytes each, big-endian), then the colours (three bytes
each), then one byte a pixel: the number of its colour. It writes nothing where it cannot.

Pictures of code are hostile. So this runs in a process of its own, with little memory and time and
no right to write a file, and unpacks with zlib alone; all else is plain Python, which no picture
can make touch memory that is not its own. JPEG and the others would need a decoder written in C.
"""

from __future__ import annotations

import collections
import itertools
import operator
import resource
import struct
import sys
import zlib
from collections.abc import Iterator

_MAGIC = b"\x89PNG\r\n\x1a\n"
_MOST_SIDE = 8192
_MOST_PIXELS = 12_000_000
_MOST_COLOURS = 256
# Of each of three, which may be left out of account.
_MOST_BITS = 4
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_MEMORY_BYTES = 512 * 1024 * 1024
_CPU_SECONDS = 6
_FILES = 16

_Planes = tuple[bytes, bytes, bytes]


class _Png:
    """The head of a PNG, and its packed rows."""

    def __init__(self, data: bytes) -> None:
        """Raise a ValueError where it is none, or one that is not read here."""
        self.palette = self.transparency = packed = b""
        head = b""
        place = len(_MAGIC)
        while place + 8 <= len(data):
            (length,) = struct.unpack_from(">I", data, place)
            kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
            place += 12 + length
            match kind:
                case b"IHDR":
                    head = body
                case b"PLTE":
                    self.palette = body
                case b"tRNS":
                    self.transparency = body
                case b"IDAT":
                    packed += body
        if not data.startswith(_MAGIC) or len(head) != 13:
            raise ValueError("no PNG")
        self.width, self.height, self.depth, self.kind, *_, interlaced = struct.unpack(
            ">IIBBBBB", head
        )
        is_known = self.kind in _CHANNELS and self.depth in (1, 2, 4, 8, 16) and not interlaced
        is_fit = 0 < self.width <= _MOST_SIDE and 0 < self.height <= _MOST_SIDE
        if not is_known or not is_fit or self.width * self.height > _MOST_PIXELS:
            raise ValueError("not a PNG that is drawn")
        bits = _CHANNELS[self.kind] * self.depth
        self._step = max(bits // 8, 1)
        self._row_bytes = (self.width * bits + 7) // 8
        most = (self._row_bytes + 1) * self.height
        self._rows = zlib.decompressobj().decompress(packed, most)
        if len(self._rows) < most:
            raise ValueError("cut off")

    def rows(self) -> Iterator[bytes]:
        """Iterate over the rows as they were before each was written as a difference."""
        size = self._row_bytes
        above = bytes(size)
        for start in range(0, (size + 1) * self.height, size + 1):
            row = self._rows[start + 1 : start + 1 + size]
            above = _restored(self._rows[start], row, above, self._step)
            yield above

    def planes(self, row: bytes) -> _Planes:
        """Return red, green and blue of a row, on white where it is transparent."""
        if self.depth == 16:
            row = row[::2]
        elif self.depth < 8:
            row = self._spread(row)
        count = _CHANNELS[self.kind]
        if self.kind == 3:
            red, green, blue = (
                row.translate(self.palette[at::3][:256].ljust(256, b"\0")) for at in range(3)
            )
            alpha = row.translate(self.transparency[:256].ljust(256, b"\xff"))
        elif count <= 2:
            red = green = blue = row[::count]
            alpha = row[1::2] if count == 2 else b""
        else:
            red, green, blue = row[::count], row[1::count], row[2::count]
            alpha = row[3::4] if count == 4 else b""
        if not alpha or alpha.count(255) == len(alpha):
            return red, green, blue
        return _on_white(red, alpha), _on_white(green, alpha), _on_white(blue, alpha)

    def _spread(self, row: bytes) -> bytes:
        """Give each of several pixels in a byte a byte of its own."""
        most = (1 << self.depth) - 1
        factor = 1 if self.kind == 3 else 255 // most
        shifts = range(8 - self.depth, -1, -self.depth)
        spread = bytes([(byte >> shift & most) * factor for byte in row for shift in shifts])
        return spread[: self.width]


def _on_white(plane: bytes, alpha: bytes) -> bytes:
    return bytes([255 - (255 - value) * a // 255 for value, a in zip(plane, alpha, strict=True)])


def _restored(kind: int, row: bytes, above: bytes, step: int) -> bytes:
    """Undo one of the five ways in which PNG writes a row as a difference."""
    size = len(row)
    if kind == 0:
        return row
    if kind == 1:
        result = bytearray(size)
        for channel in range(step):
            sums = itertools.accumulate(row[channel::step])
            result[channel::step] = bytes([value & 255 for value in sums])
        return bytes(result)
    if kind == 2:
        return bytes([(a + b) & 255 for a, b in zip(row, above, strict=True)])
    result = bytearray(row)
    if kind == 3:
        for at in range(size):
            left = result[at - step] if at >= step else 0
            result[at] = (row[at] + (left + above[at] >> 1)) & 255
    elif kind == 4:
        for channel in range(step):
            result[channel::step] = _paeth(row[channel::step], above[channel::step])
    else:
        raise ValueError("no such filter")
    return bytes(result)


def _paeth(row: bytes, above: bytes) -> bytes:
    """Undo the filter of that name for one channel."""
    left = corner = 0
    result = bytearray()
    for value, up in zip(row, above, strict=True):
        to_left, to_up = abs(up - corner), abs(left - corner)
        to_corner = abs(left + up - 2 * corner)
        if to_left <= to_up and to_left <= to_corner:
            near = left
        else:
            near = up if to_up <= to_corner else corner
        left, corner = (value + near) & 255, up
        result.append(left)
    return bytes(result)


def _fitted(png: _Png, columns: int, lines: int) -> list[_Planes]:
    """Return the rows of the picture, made smaller where it is larger; pixels are averaged."""
    share = min(columns / png.width, lines / png.height, 1.0)
    width, height = max(int(png.width * share), 1), max(int(png.height * share), 1)
    rows = map(png.planes, png.rows())
    if (width, height) == (png.width, png.height):
        return list(rows)
    edges = [at * png.width // width for at in range(width + 1)]
    ends = [(at + 1) * png.height // height for at in range(height)]
    result: list[_Planes] = []
    start = 0
    for end in ends:
        taken = list(itertools.islice(rows, end - start))
        red, green, blue = (_averaged([planes[at] for planes in taken], edges) for at in range(3))
        result.append((red, green, blue))
        start = end
    return result


def _averaged(rows: list[bytes], edges: list[int]) -> bytes:
    """Average several rows of one channel into one, pixels between two edges into one."""
    total: list[int] | bytes = rows[0]
    for row in rows[1:]:
        total = list(map(operator.add, total, row))
    sums = list(itertools.accumulate(total, initial=0))
    count = len(rows)
    return bytes(
        [
            (sums[end] - sums[start]) // ((end - start) * count)
            for start, end in itertools.pairwise(edges)
        ]
    )


def _coloured(rows: list[_Planes]) -> tuple[list[tuple[int, ...]], bytes]:
    """Choose the colours, and return them with one number for each pixel."""
    pixels = list(itertools.chain.from_iterable(zip(*planes, strict=True) for planes in rows))
    counted = collections.Counter(pixels)
    places: dict[tuple[int, ...], int]
    if len(counted) <= _MOST_COLOURS:
        places = {colour: at for at, colour in enumerate(counted)}
        return list(places), bytes(map(places.__getitem__, pixels))
    # Colours that hardly differ count as one, and take the look of the commonest of them.
    for bits in range(1, _MOST_BITS + 1):
        keys = {colour: tuple(value >> bits for value in colour) for colour in counted}
        if len(set(keys.values())) <= _MOST_COLOURS:
            break
    rough: dict[tuple[int, ...], tuple[int, ...]] = {}
    weights: collections.Counter[tuple[int, ...]] = collections.Counter()
    for colour, count in counted.most_common():
        rough.setdefault(keys[colour], colour)
        weights[keys[colour]] += count
    chosen = [rough[key] for key, _ in weights.most_common(_MOST_COLOURS)]
    nearest = {key: _nearest(colour, chosen) for key, colour in rough.items()}
    return chosen, bytes([nearest[keys[colour]] for colour in pixels])


def _nearest(colour: tuple[int, ...], chosen: list[tuple[int, ...]]) -> int:
    red, green, blue = colour
    distances = [(red - r) ** 2 + (green - g) ** 2 + (blue - b) ** 2 for r, g, b in chosen]
    return distances.index(min(distances))


def main(columns: int, lines: int) -> None:
    """Read a PNG and write its raster."""
    for kind, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    try:
        rows = _fitted(_Png(sys.stdin.buffer.read()), columns, lines)
        colours, pixels = _coloured(rows)
    except (ValueError, IndexError, struct.error, zlib.error, MemoryError):
        return
    head = struct.pack(">HHH", len(rows[0][0]), len(rows), len(colours))
    sys.stdout.buffer.write(head + bytes(itertools.chain.from_iterable(colours)) + pixels)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
