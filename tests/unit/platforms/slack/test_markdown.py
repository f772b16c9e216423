"""Formulas in a model's words on Slack, also while they are streamed."""

import pytest

from interpreter_bot.platforms.slack import markdown

WORDS = (
    "The fit \\(R^2 = 0.9\\) costs $5 or $6, `$x_1$` is code, $a_1 + b$ is none.\n\n"
    "$$\nE = mc^2\n$$\n\nSo $x^2$, \\[ y \\] and\n\\[ z \\]\nIt ends with 3 $."
)


MORE_WORDS = (
    "So $2^n$, $\\frac{a}{b}$. And $0 < x_1$: $2x + 3y = 5$ or $5 + tax.\n"
    "$$a_1$$ and $$\\begin{cases} 1 & x \\\\ 0\\end{cases}$$ hold.\n\n$$\nx\n$$\n"
    "\\[\n1 & 2 \\\\\n\\] \n`code` $y_1$, $HOME=$(pwd) and ${X}_$Y.\n"
    "$$ is cheap,\n$$ too, and $$.\nFrom $5_000 to $6_000, \u0645\u062b\u0644 $3^k$."
)


def converted(text, *, is_whole=True):
    return "\n".join(block.text for block in markdown.blocks(text, is_whole=is_whole))


def test_formulas_are_shown_as_code():
    assert converted(WORDS) == (
        "The fit `R^2 = 0.9` costs $5 or $6, `$x_1$` is code, `a_1 + b` is none.\n\n"
        "```tex\nE = mc^2\n```\n\nSo `x^2`, \\[ y \\] and\n```tex\nz\n```\nIt ends with 3 $."
    )


def test_formulas_are_told_from_prices_and_variables():
    assert converted(MORE_WORDS) == (
        "So `2^n`, `\\frac{a}{b}`. And `0 < x_1`: `2x + 3y = 5` or $5 + tax.\n"
        "`a_1` and `\\begin{cases} 1 & x \\\\ 0\\end{cases}` hold.\n\n```tex\nx\n```\n"
        "```tex\n1 & 2 \\\\\n```\n`code` `y_1`, $HOME=$(pwd) and ${X}_$Y.\n"
        "$$ is cheap,\n$$ too, and $$.\nFrom $5_000 to $6_000, \u0645\u062b\u0644 `3^k`."
    )
    assert converted("``a ` $z_1$``") == "``a ` $z_1$``"


@pytest.mark.parametrize("words", [WORDS, MORE_WORDS])
def test_nothing_that_was_streamed_changes(words):
    shown = ""
    for end in range(len(words) + 1):
        blocks = [*markdown.blocks(words[:end], is_whole=False)]
        steady = [block for block in blocks if block.is_line or not block.may_grow]
        text = "\n".join(block.text for block in steady)
        assert text.startswith(shown.removesuffix("\n")), words[:end]
        shown = text


@pytest.mark.parametrize(
    "hostile",
    [
        "\\(" * 50_000,
        "$a_" * 50_000,
        "`$" * 50_000,
        "$$\n" * 30_000,
        "$$1" * 50_000,
        "``a`" * 50_000,
    ],
)
def test_hostile_formulas_take_no_time(hostile):
    for is_whole in True, False:
        converted(hostile, is_whole=is_whole)
