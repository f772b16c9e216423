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


def find_uses(
    executions: Iterable[records.Execution], names: Collection[str]
) -> Mapping[str, list[VariableUse]]:
    """Return, by variable, the cells that assign or read it: the latest first, at most `_MAX_USES`.

    Args:
        executions: the latest first; after `_MAX_TOTAL_CHARACTERS` of code, the rest is skipped.
        names: of the variables.
    """
    uses: dict[str, list[VariableUse]] = collections.defaultdict(list)
    characters_left = _MAX_TOTAL_CHARACTERS
    for execution in executions:
        characters_left -= min(len(execution.code), _MAX_CELL_CHARACTERS)
        if characters_left < 0:
            break
        for name, is_assignment in _classify_names(execution.code).items():
            if name in names and len(uses[name]) < _MAX_USES:
                line = execution.code.strip().partition("\n")[0][:_MAX_LINE_CHARACTERS]
                uses[name].append(VariableUse(execution.turn_id, line, is_assignment))
    return uses


def find_latest_assignments(codes: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the cells that assigned the variables last, in the order in which they ran.

    Args:
        codes: of all cells, the latest first.
        names: of the variables.
    """
    missing_names, cells = set(names), []
    for code in codes:
        if not missing_names:
            break
        if assignments := missing_names.intersection(find_assigned_names(code)):
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
    imported_names = {
        symbol.get_name()
        for code in codes
        for table in _make_symbol_tables(code)
        for symbol in table.get_symbols()
        if symbol.is_imported()
    }
    missing_names: set[str] = set()
    cells = []
    for number, code in enumerate(codes):
        assigned_names = find_assigned_names(code)
        changed_names = assigned_names | (_find_changed_names(code) - imported_names)
        is_installation = code.lstrip().startswith(_INSTALLATION_PREFIXES)
        if number < count or is_installation or missing_names.intersection(changed_names):
            cells.append(code)
            read_names = _find_read_names(code)
            # Earlier cells need not assign a variable that this cell assigns, unless it reads it.
            missing_names = missing_names - (assigned_names - read_names) | read_names
    return tuple(reversed(cells))


def _find_read_names(code: str) -> set[str]:
    """Return the global names that a cell reads."""
    tables, names = _make_symbol_tables(code), set()
    while tables:
        table = tables.pop()
        is_module = table.get_type() == "module"
        names |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (is_module or symbol.is_global())
        }
        tables += table.get_children()
    return names


def _find_changed_names(code: str) -> set[str]:
    """Return the variables that a cell may change in place: by items, attributes or methods."""
    try:
        tree = ast.parse(code[:_MAX_CELL_CHARACTERS])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ):
                names.add(_find_base_name(node))
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                names.add(_find_base_name(method))
    return names


def _find_base_name(node: ast.expr) -> str:
    """Return the variable to which an attribute or an item belongs; empty if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def find_assigned_names(code: str) -> set[str]:
    """Return the names that a cell assigns or imports at its top level."""
    return {
        symbol.get_name()
        for table in _make_symbol_tables(code)
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }


def _classify_names(code: str) -> dict[str, bool]:
    """Return the global names in a cell, and whether it assigns them."""
    tables = _make_symbol_tables(code)
    names: dict[str, bool] = {}
    while tables:
        table = tables.pop()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if is_module or symbol.is_global():
                is_assignment = symbol.is_assigned() or symbol.is_imported()
                if is_assignment or symbol.is_referenced():
                    names[symbol.get_name()] = names.get(symbol.get_name(), False) or is_assignment
        tables += table.get_children()
    return names


def _make_symbol_tables(code: str) -> list[symtable.SymbolTable]:
    """Return the symbol table of a cell's top level; none if the cell is too long or invalid."""
    if len(code) > _MAX_CELL_CHARACTERS:
        return []
    try:
        return [symtable.symtable(_replace_comprehensions(code), "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # A command of IPython, or code written to defeat the parser.
        _log.info("a cell is not understood: %r", error)
        return []


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


def _replace_comprehensions(code: str) -> str:
    comprehensions = _ComprehensionTransformer()
    tree = comprehensions.visit(ast.parse(code))
    return ast.unparse(tree) if comprehensions.has_replaced else code
