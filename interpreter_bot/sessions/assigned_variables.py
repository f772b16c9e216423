"""Names that cells give to variables, read from their code; nothing is run."""

from __future__ import annotations

import ast
import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Final

_log = logging.getLogger(__name__)

_MOST_CHARACTERS: Final = 100_000
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HIDING: Final = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def latest(codes: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the cells that gave names to variables last, in the order in which they ran.

    Args:
        codes: of all cells, the latest first.
        names: of the variables.
    """
    missing, found = set(names), []
    for code in codes:
        if not missing:
            break
        if made := missing.intersection(assigned(code)):
            missing -= made
            found.append(code)
    return tuple(reversed(found))


def assigned(code: str) -> set[str]:
    """Return the names that a cell gives on its top level; none of what cannot be parsed."""
    if len(code) > _MOST_CHARACTERS:
        return set()
    try:
        return set(_names(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # IPython's own commands, or a cell that is made to be difficult.
        _log.info("a cell is not understood: %r", error)
        return set()


def _names(tree: ast.AST) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        if not isinstance(node, (*_SCOPES, *_HIDING)):
            waiting.extend(ast.iter_child_nodes(node))
