"""Pictures as pixels: decoded in a process of its own, measured, and written for terminals."""

import io
import random
import re
import struct
import zlib

import pytest
from PIL import Image

from interpreter_bot.platforms.console import terminal_rasters
from tests.unit.platforms.console import sixel_reading

WIDTH, HEIGHT = 37, 23


def png(image, **options):
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def drawn(mode):
    """A picture of few colours, with edges in both directions."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    image.paste((200, 30, 10), (3, 2, 20, 15))
    image.paste((10, 30, 200), (15, 9, 36, 22))
    return image.convert(mode)


def shown(raster):
    return [raster.colours[number] for number in raster.pixels]


def pixels(image):
    data = image.convert("RGB").tobytes()
    return [tuple(data[at : at + 3]) for at in range(0, len(data), 3)]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1", "I;16"])
def test_each_kind_of_png_is_decoded_as_it_is(mode):
    image = drawn("L").convert("I;16") if mode == "I;16" else drawn(mode)
    raster = terminal_rasters.decoded(png(image), columns=100, lines=100)
    assert (raster.width, raster.height) == (WIDTH, HEIGHT)
    if mode == "I;16":
        # The high byte of values up to 255 is 0.
        assert set(shown(raster)) == {(0, 0, 0)}
    else:
        assert shown(raster) == pixels(image)


def written(rows, kinds):
    """A PNG of RGB whose rows are written by the filters that are named."""
    step, size = 3, len(rows[0])
    above, packed = bytes(size), b""
    for row, kind in zip(rows, kinds, strict=True):
        packed += bytes([kind])
        for at in range(size):
            left = row[at - step] if at >= step else 0
            corner = above[at - step] if at >= step else 0
            near = min(
                (abs(above[at] - corner), 0, left),
                (abs(left - corner), 1, above[at]),
                (abs(left + above[at] - 2 * corner), 2, corner),
            )[2]
            guess = (0, left, above[at], (left + above[at]) // 2, near)[kind]
            packed += bytes([(row[at] - guess) & 255])
        above = row
    head = struct.pack(">IIBBBBB", size // 3, len(rows), 8, 2, 0, 0, 0)

    def chunk(kind, body):
        check = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(packed)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_each_filter_of_png_is_undone():
    numbers = random.Random(5)
    rows = [bytes(numbers.choices(range(256), k=30)) for _ in range(10)]
    data = written(rows, [0, 1, 2, 3, 4, 4, 3, 2, 1, 4])
    assert Image.open(io.BytesIO(data)).tobytes() == b"".join(rows)  # So the test is right.
    raster = terminal_rasters.decoded(data, columns=10, lines=10)
    assert bytes(value for colour in shown(raster) for value in colour) == b"".join(rows)


def test_what_is_transparent_is_white_and_what_is_large_is_averaged():
    image = Image.new("RGBA", (400, 200), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (200, 0, 400, 200))
    raster = terminal_rasters.decoded(png(image), columns=40, lines=44)
    assert (raster.width, raster.height) == (40, 20)
    assert shown(raster)[:40] == [(255, 255, 255)] * 20 + [(255, 0, 0)] * 20


def test_many_colours_become_256_that_are_near():
    image = Image.radial_gradient("L").resize((120, 90))
    blended = Image.merge("RGB", (image, image.rotate(90), image.rotate(45)))
    raster = terminal_rasters.decoded(png(blended), columns=120, lines=90)
    assert 100 < len(raster.colours) <= 256
    pairs = zip(shown(raster), pixels(blended), strict=True)
    assert max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True)) < 64


def bomb():
    head = struct.pack(">IIBBBBB", 8000, 8000, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + bytes(4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture",
        bomb(),
        png(drawn("RGB"))[:90],
        png(drawn("RGB")).replace(struct.pack(">II", WIDTH, HEIGHT), bytes(8)),
        written([bytes(30)] * 2, [0, 0]).replace(b"IDAT", b"IDAX"),
    ],
)
def test_what_is_no_whole_picture_of_a_bearable_size_is_not_shown(data):
    assert terminal_rasters.decoded(data, columns=80, lines=44) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x1b]0;title\x07",
        struct.pack(">HHH", 2, 1, 1) + b"abc" + b"\0",
        struct.pack(">HHH", 2, 1, 1) + b"abc" + b"\0\0\0",
        struct.pack(">HHH", 2, 1, 1) + b"abc" + b"\0\1",
        struct.pack(">HHH", 81, 1, 1) + b"abc" + bytes(81),
        struct.pack(">HHH", 0, 0, 1) + b"abc",
    ],
)
def test_a_decoder_that_writes_anything_else_is_not_believed(answer):
    assert terminal_rasters.read(answer, columns=80, lines=44) is None
    good = struct.pack(">HHH", 2, 1, 2) + b"abcdef" + b"\0\1"
    assert terminal_rasters.read(good, columns=80, lines=44).pixels == b"\0\1"


def test_sixel_shows_every_pixel():
    raster = terminal_rasters.decoded(png(drawn("RGB")), columns=100, lines=100)
    width, height, found = sixel_reading.pixels(terminal_rasters.sixel(raster))
    assert (width, height) == (WIDTH, HEIGHT)
    for one, other in zip(found, shown(raster), strict=True):
        # Its colours are percentages.
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 2


def test_half_blocks_show_two_rows_a_line():
    raster = terminal_rasters.Raster(2, 3, ((0, 0, 0), (255, 0, 128)), b"\0\1\1\1\0\0")
    text = terminal_rasters.half_blocks(raster, is_true_colour=True)
    assert text == (
        "\x1b[38;2;0;0;0;48;2;255;0;128m▀\x1b[38;2;255;0;128;48;2;255;0;128m▀\x1b[0m\n"
        "\x1b[38;2;0;0;0m▀▀\x1b[0m\n"
    )
    text = terminal_rasters.half_blocks(raster, is_true_colour=False)
    assert re.findall(r"[34]8;5;\d+", text) == [
        *("38;5;16", "48;5;198", "38;5;198", "48;5;198"),
        "38;5;16",
    ]
