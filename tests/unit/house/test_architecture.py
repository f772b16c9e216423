"""What ARCHITECTURE.md says: its words are those of the code."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = ROOT / "interpreter_bot"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
MAX_LINES = 380
TYPES = re.findall(r"\[`([\w.]+)`", TEXT)
MODULES = {path.stem for path in PACKAGE.rglob("*.py")}
FOLDERS = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}


def _module(dotted):
    return PACKAGE.joinpath(*dotted.split(".")).with_suffix(".py")


def test_it_is_read_in_a_quarter_of_an_hour():
    assert len(TEXT.splitlines()) <= MAX_LINES


def test_the_glossary_has_terms():
    assert len(TYPES) >= 20


def test_terms_are_carried_by_the_types_they_name():
    for name in TYPES:
        module, _, kind = name.rpartition(".")
        tree = ast.parse(_module(module).read_text("utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        imported = {alias.name for node in imports for alias in node.names}
        assert kind in defined | imported, f"rename {name} in the glossary, or back in the code"


def test_every_module_it_names_is_there():
    named = re.findall(r"`([a-z_]+(?:[/.][a-z_]+)*)/?`", TEXT)
    known = MODULES | FOLDERS
    # Methods and packages of others are not modules of ours.
    missing = [
        name
        for name in named
        if "/" in name
        and name.split("/")[0] not in ("tests",)
        and not any(
            (base / f"{name}.py").exists() or (base / name).is_dir() for base in (PACKAGE, ROOT)
        )
    ]
    flows = TEXT.partition("## Flows")[2].partition("## Glossary")[0]
    missing += [
        name
        for name in re.findall(r"`([a-z][a-z_]+)`", flows)
        if name not in known and name != "take"
    ]
    assert not missing


def test_charters_name_modules_that_are_there():
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        charter = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
        named = set(re.findall(r"`([a-z][a-z_]+)`", charter))
        unknown = named - MODULES - FOLDERS - {"interpreter_bot", "openai", "anthropic"}
        assert unknown == set(), folder
