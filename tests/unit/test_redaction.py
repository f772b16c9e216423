"""Secrets are taken out of a text, whole."""

import pytest

from interpreter_bot import redaction


@pytest.mark.parametrize(
    ("text", "secrets", "expected"),
    [
        ("the key is hunter2.", ["hunter2"], "the key is [redacted]."),
        ("one inside another: abcdefgh", ["cdef", "abcdefgh"], "one inside another: [redacted]"),
        ("twice: sesame sesame", ["sesame"], "twice: [redacted] [redacted]"),
        ("short ones stay: a1b", ["a1b", "", "b"], "short ones stay: a1b"),
        ("none", [], "none"),
    ],
)
def test_no_part_of_a_secret_stays(text, secrets, expected):
    assert redaction.redact(text, secrets) == expected
