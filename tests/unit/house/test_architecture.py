"""What ARCHITECTURE.md and the charters say: their words are those of the code."""

import ast
import re

from tests.unit.house import sources

TEXT = (sources.ROOT / "ARCHITECTURE.md").read_text("utf-8")
MODULES = {path.stem for path in sources.PACKAGE.rglob("*.py")}
FOLDERS = {path.name for path in sources.PACKAGE.rglob("*") if path.is_dir()}


def test_terms_are_carried_by_the_types_they_name():
    types = re.findall(r"\[`([\w.]+)`", TEXT)
    assert len(types) >= 20
    for name in types:
        module, _, kind = name.rpartition(".")
        _, tree = sources.modules()[module.replace(".", "/") + ".py"]
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        imported = {alias.name for node in imports for alias in node.names}
        assert kind in defined | imported, f"rename {name} in the glossary, or back in the code"


def test_every_module_that_is_named_is_there():
    paths = {
        name
        for name in re.findall(r"`([a-z_]+(?:[/.][a-z_]+)*)/?`", TEXT)
        if "/" in name and not name.startswith("tests/")
    }
    assert [
        name
        for name in paths
        if not any(
            (base / f"{name}.py").exists() or (base / name).is_dir()
            for base in (sources.PACKAGE, sources.ROOT)
        )
    ] == []
    flows = TEXT.partition("## Flows")[2].partition("## Glossary")[0]
    assert set(re.findall(r"`([a-z][a-z_]+)`", flows)) - MODULES - FOLDERS - {"take"} == set()


def test_packages_open_with_their_charter_and_hold_no_code():
    modules = sources.modules()
    folders = {path.rpartition("/")[0] for path in modules}
    for folder in folders:
        _, tree = modules[f"{folder}/__init__.py".removeprefix("/")]
        charter = ast.get_docstring(tree)
        assert charter, folder
        # The package itself has the public interface, imported once somebody uses it.
        assert len(tree.body) == 1 or not folder, folder
        unknown = set(re.findall(r"`([a-z][a-z_]+)`", charter)) - MODULES - FOLDERS
        assert unknown - {"interpreter_bot", "openai", "anthropic"} == set(), folder
