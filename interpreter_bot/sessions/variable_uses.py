"""Find the cells that assign and read variables, by the names that Python's compiler sees.

No code is run, so effects of `exec` or of other files are not seen.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import logging
import symtable
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from interpreter_bot.store import records

_log = logging.getLogger(__name__)

_MAX_CELL_CHARACTERS: Final = 100_000
_MAX_TOTAL_CHARACTERS: Final = 300_000
_MAX_USES: Final = 20
_MAX_LINE_CHARACTERS: Final = 80
_INSTALLATION_PREFIXES: Final = ("%pip", "!pip", "%uv", "!uv")


@dataclasses.dataclass(frozen=True, slots=True)
class VariableUse:
    """A cell that assigns or reads a variable.

    Attributes:
        turn_id: of the turn in which the cell ran.
        line: first line of the cell.
        is_assignment: whether the cell assigns the variable; it may read the variable too.
    """

    turn_id: int
    line: str
    is_assignment: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _CellNames:
    """The global names in a cell.

    Attributes:
        assigned: assigned or imported at the top level.
        imported: imported at the top level.
        written: assigned or imported anywhere.
        read: read anywhere.
        changed: perhaps changed in place, by items, attributes or methods.
    """

    assigned: set[str] = dataclasses.field(default_factory=set)
    imported: set[str] = dataclasses.field(default_factory=set)
    written: set[str] = dataclasses.field(default_factory=set)
    read: set[str] = dataclasses.field(default_factory=set)
    changed: set[str] = dataclasses.field(default_factory=set)


def find_uses(
    executions: Iterable[records.Execution], names: Collection[str]
) -> Mapping[str, list[VariableUse]]:
    """Return, by variable, the cells that assign or read it: the latest first, at most `_MAX_USES`.

    Args:
        executions: the latest first; after `_MAX_TOTAL_CHARACTERS` of code, the rest is skipped.
    """
    uses: dict[str, list[VariableUse]] = collections.defaultdict(list)
    characters_left = _MAX_TOTAL_CHARACTERS
    for execution in executions:
        characters_left -= min(len(execution.code), _MAX_CELL_CHARACTERS)
        if characters_left < 0:
            break
        cell = _find_names(execution.code)
        line = execution.code.strip().partition("\n")[0][:_MAX_LINE_CHARACTERS]
        for name in (cell.written | cell.read).intersection(names):
            if len(uses[name]) < _MAX_USES:
                uses[name].append(VariableUse(execution.turn_id, line, name in cell.written))
    return uses


def find_latest_assignments(codes: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the cells that assigned the variables last, in the order in which they ran.

    Args:
        codes: of all cells, the latest first.
    """
    missing_names, cells = set(names), []
    for code in codes:
        if not missing_names:
            break
        if assignments := missing_names & _find_names(code).assigned:
            missing_names -= assignments
            cells.append(code)
    return tuple(reversed(cells))


def find_needed_cells(codes: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the latest cells, and the cells that they need, in the order in which they ran.

    A cell is needed if it installs packages, or assigns or changes a variable that a needed cell
    reads.

    Args:
        codes: of all cells, the latest first.
        count: number of the latest cells, which are needed in any case.
    """
    names_by_cell = [_find_names(code) for code in codes]
    imported = set().union(*(names.imported for names in names_by_cell))
    missing: set[str] = set()
    cells = []
    for number, (code, names) in enumerate(zip(codes, names_by_cell, strict=True)):
        is_installation = code.lstrip().startswith(_INSTALLATION_PREFIXES)
        gives_missing = missing & (names.assigned | (names.changed - imported))
        if number < count or is_installation or gives_missing:
            cells.append(code)
            # Earlier cells need not assign a variable that this cell assigns, unless it reads it.
            missing = missing - (names.assigned - names.read) | names.read
    return tuple(reversed(cells))


def _find_base_name(node: ast.expr) -> str:
    """Return the variable to which an attribute or an item belongs; empty if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _find_names(code: str) -> _CellNames:
    """Return the global names in a cell; none if it is too long or invalid."""
    names = _CellNames()
    if len(code) > _MAX_CELL_CHARACTERS:
        return names
    try:
        comprehensions = _ComprehensionTransformer()
        tree = comprehensions.visit(ast.parse(code))
        source = ast.unparse(tree) if comprehensions.has_replaced else code
        tables = [symtable.symtable(source, "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # A command of IPython, or code written to defeat the parser.
        _log.info("a cell is not understood: %r", error)
        return names
    while tables:
        table = tables.pop()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if not (is_module or symbol.is_global()):
                continue
            if symbol.is_referenced():
                names.read.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported():
                names.written.add(symbol.get_name())
                if is_module:
                    names.assigned.add(symbol.get_name())
            if is_module and symbol.is_imported():
                names.imported.add(symbol.get_name())
        tables += table.get_children()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ):
                names.changed.add(_find_base_name(node))
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                names.changed.add(_find_base_name(method))
    return names


class _ComprehensionTransformer(ast.NodeTransformer):
    """Turns comprehensions into generators, which have their own scope in all Python versions."""

    def __init__(self) -> None:
        self.has_replaced = False

    def _turn_into_generator(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp
    ) -> ast.GeneratorExp:
        self.has_replaced = True
        self.generic_visit(node)
        if isinstance(node, ast.DictComp):
            element: ast.expr = ast.Tuple([node.key, node.value], ast.Load())
        else:
            element = node.elt
        return ast.GeneratorExp(element, node.generators)

    visit_ListComp = visit_SetComp = visit_DictComp = _turn_into_generator  # noqa: N815 - names of ast
