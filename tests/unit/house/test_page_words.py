"""What people read on the page is in two of its modules."""

import pathlib
import re

PAGES = pathlib.Path(__file__).parents[3] / "interpreter_bot/platforms/web/pages"
# Libraries, and a table of made-up sales.
WORDS = ("words.js", "later_words.js")
OTHERS = {*WORDS, "codemirror.js", "markdown_it.js", "temml.js", "sample_table.js"}
SENTENCE = re.compile(r"""["`][A-Z][a-z']* [a-z$][^"`\n]*["`]""")


def test_sentences_are_in_the_modules_of_words():
    found = {
        path.name: SENTENCE.findall(path.read_text())
        for path in PAGES.glob("*.js")
        if path.name not in OTHERS
    }
    assert {name: sentences for name, sentences in found.items() if sentences} == {}


def test_each_word_is_used():
    words = "".join((PAGES / name).read_text() for name in WORDS)
    pages = "".join(path.read_text() for path in PAGES.glob("*.js") if path.name not in WORDS)
    groups = re.findall(r"^export const (\w+) = \{\n(.*?)^\};", words, re.MULTILINE | re.DOTALL)
    names = [
        f"{group}.{name}"
        for group, body in groups
        for name in re.findall(r"^  (\w+):", body, re.MULTILINE)
    ]
    assert len(names) > 100
    used = set(re.findall(r"\b(?=(\w+\.\w+))", pages))
    assert [name for name in names if name not in used] == []
