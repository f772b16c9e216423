"""Formulas in a model's words on Slack, also while they are streamed."""

import pytest

from interpreter_bot.platforms.slack import markdown

WORDS = (
    "The fit \\(R^2 = 0.9\\) costs $5 or $6, `$x_1$` is code, $a_1 + b$ is none.\n\n"
    "$$\nE = mc^2\n$$\n\nSo $x^2$, \\[ y \\] and\n\\[ z \\]\nIt ends with 3 $."
)


def converted(text, *, is_whole=True):
    return "\n".join(block.text for block in markdown.blocks(text, is_whole=is_whole))


def test_formulas_are_shown_as_code():
    assert converted(WORDS) == (
        "The fit `R^2 = 0.9` costs $5 or $6, `$x_1$` is code, `a_1 + b` is none.\n\n"
        "```tex\nE = mc^2\n```\n\nSo `x^2`, \\[ y \\] and\n```tex\nz\n```\nIt ends with 3 $."
    )


def test_nothing_that_was_streamed_changes():
    shown = ""
    for end in range(len(WORDS) + 1):
        blocks = [*markdown.blocks(WORDS[:end], is_whole=False)]
        steady = [block for block in blocks if block.is_line or not block.may_grow]
        text = "\n".join(block.text for block in steady)
        assert text.startswith(shown.removesuffix("\n")), WORDS[:end]
        shown = text


@pytest.mark.parametrize(
    "hostile", ["\\(" * 50_000, "$a_" * 50_000, "`$" * 50_000, "$$\n" * 30_000]
)
def test_hostile_formulas_take_no_time(hostile):
    for is_whole in True, False:
        converted(hostile, is_whole=is_whole)
