"""The code that the rules are about, read once for all of them."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = ROOT / "interpreter_bot"


@functools.cache
def modules():
    """Give the text and the tree of each module by its path in the package."""
    texts = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        path.relative_to(PACKAGE).as_posix(): (text, ast.parse(text))
        for path, text in texts.items()
    }


def dotted(path):
    """Return the name of a module in the package by its path."""
    return path.removesuffix(".py").replace("/", ".")
