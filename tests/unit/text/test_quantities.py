"""Sizes, times and counts in words."""

import pytest

from interpreter_bot.text import quantities


@pytest.mark.parametrize(
    ("count_bytes", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1 KiB"),
        (1_000_000, "977 KiB"),
        (1024**2 - 1, "1,024 KiB"),
        (1792 * 1024**2, "1.75 GiB"),
        (512 * 1024**2, "512 MiB"),
        (5 * 1024**4, "5 TiB"),
        (2000 * 1024**4, "2,000 TiB"),
    ],
)
def test_sizes(count_bytes, words):
    assert quantities.size(count_bytes) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.042, "0.04 s"),
        (0.5, "0.5 s"),
        (12.34, "12.3 s"),
        (59.99, "1 min"),
        (125, "2 min 5 s"),
        (3599.7, "1 h"),
        (5400, "1 h 30 min"),
        (90_000, "25 h"),
    ],
)
def test_times(seconds, words):
    assert quantities.duration(seconds) == words


def test_counts():
    assert [quantities.count(number, "file") for number in (0, 1, 1200)] == [
        "0 files",
        "1 file",
        "1,200 files",
    ]


def test_a_long_text_is_one_line_that_says_it_goes_on():
    assert quantities.one_line(" a\n b ", 3) == "a b"
    assert quantities.one_line("a\nb c", 4) == "a b…"
