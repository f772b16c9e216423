"""The rules of the house, as far as a machine can see them."""

import ast
import collections
import functools
import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = ROOT / "interpreter_bot"
MODULES = sorted(PACKAGE.rglob("*.py"))
UNIT_TESTS = ROOT / "tests/unit"
# The others are about the whole: its rules, and what measures it.
TESTS_OF_MODULES = sorted(
    path
    for path in UNIT_TESTS.rglob("test_*.py")
    if path.relative_to(UNIT_TESTS).parts[0] not in ("bench", "house")
)

MOST_LINES_OF_A_FILE = 400
LINES_WITHOUT_A_REASON = 300
FEWEST_LINES_OF_A_FILE = 50
MOST_LINES_OF_A_FUNCTION = 60
NAMES_THAT_SAY_NOTHING = {
    *("base", "common", "core", "helpers", "manager", "models", "types", "utils"),
}

# One name for the same job on another platform, for the two ends of a protocol, for a domain
# module and its table, for what each layer asks of the one above.
NAMES_THAT_REPEAT = {
    *(
        "answer_contents",
        "api_errors",
        "message_events",
        "message_parsing",
        "modals",
        "permissions",
    ),
    *("replies", "requests_in_flight", "startup"),
    *("control_channels", "subcommands", "markdown", "preferences"),
    *("snapshot_manifests", "snapshots", "turns"),
    *("ports", "__main__"),
}
# Words of the field that happen to end so: Kubernetes meters, Jupyter provisions, browsers render,
# providers host.
GERUNDS_OF_THE_FIELD = {"metering", "provisioning", "rendering"}
# What each object is called wherever it is handed in.
PARAMETERS = {
    "session_service.SessionService": "service",
    "settings.Settings": "config",
    "settings.Discord": "config",
    "settings.Mcp": "config",
    "settings.Slack": "config",
    "settings.Web": "config",
}

# Runs in an interpreter of its own. A read counts as ours when nothing but the standard library
# lies between it and us: what a third-party library does while it is imported is its affair.
IMPORT_EVERYTHING = """
import gc, importlib, logging, os, sys

gc.disable()
faults = []

class Watched(type(os.environ)):
    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame:
            name = frame.f_globals.get("__name__", "")
            top = name.partition(".")[0]
            if top == "interpreter_bot":
                faults.append(f"{name} reads {key} at import")
            if top == "importlib" or top not in sys.stdlib_module_names:
                break
            frame = frame.f_back
        return super().__getitem__(key)

os.environ.__class__ = Watched
os.environ["HOUSE_TEST"] = "1"

from interpreter_bot import settings

def refuse(*_, **__):
    raise AssertionError("Settings() at import")

settings.Settings.__init__ = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
    if logging.getLogger().handlers:
        faults.append(f"{name} configures logging at import")
        logging.getLogger().handlers.clear()
print(*faults, sep="\\n")
"""


def _name(path):
    return str(path.relative_to(ROOT))


def _dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def _tree(path):
    return ast.parse(path.read_text("utf-8"))


def _functions(path):
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def _importers():
    """Modules by who imports them, both dotted."""
    names = {_dotted(path): path for path in MODULES}
    found = {name: set() for name in names}
    for name, path in names.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.ImportFrom):
                continue
            levels = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = [*(levels if node.level else ()), *filter(None, [node.module])]
            for alias in node.names:
                for imported in (".".join(parts), ".".join([*parts, alias.name])):
                    if imported in found:
                        found[imported].add(name)
    return found


IMPORTERS = _importers()


def _file_is_short(path):
    text = path.read_text("utf-8")
    lines = len(text.splitlines())
    assert lines <= MOST_LINES_OF_A_FILE, "cut it where one part has a name of its own"
    if lines > LINES_WITHOUT_A_REASON:
        reason = re.search(r"Above 300 lines", ast.get_docstring(_tree(path)))
        assert reason, "cut it, or say in its docstring: 'Above 300 lines: <why it is one thing>'"


def _a_small_file_serves_more_than_one(path):
    if path.name in ("__init__.py", "__main__.py", "ports.py"):
        return
    lines, importers = len(path.read_text("utf-8").splitlines()), IMPORTERS[_dotted(path)]
    assert lines >= FEWEST_LINES_OF_A_FILE or len(importers) != 1, (
        f"only {importers} imports these {lines} lines: put them there, or with what they belong to"
    )


def test_names_repeat_only_where_the_job_does():
    bases = collections.Counter(path.stem for path in MODULES if path.name != "__init__.py")
    repeated = {name for name, count in bases.items() if count > 1}
    assert repeated <= NAMES_THAT_REPEAT, "say in the name which of them it is"
    assert repeated >= NAMES_THAT_REPEAT, "take from the list what does not repeat any more"


def _names_are_nouns(path):
    bare = [
        part
        for part in path.relative_to(ROOT).with_suffix("").parts
        if part.endswith("ing") and "_" not in part and part not in GERUNDS_OF_THE_FIELD
    ]
    assert not bare, f"name the object, not the activity: {bare}"


def _one_object_has_one_name(path):
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            for argument in (one for one in given if one.annotation is not None):
                wanted = PARAMETERS.get(ast.unparse(argument.annotation), argument.arg)
                # Two settings of a kind are told apart by their names.
                assert wanted in {one.arg for one in given}, f"call {argument.arg} {wanted}"


def _functions_are_short(path):
    long = {name: lines for name, lines in _functions(path) if lines > MOST_LINES_OF_A_FUNCTION}
    assert long == {}


def _name_says_something(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    assert not NAMES_THAT_SAY_NOTHING.intersection(parts)


def _nothing_is_put_off(path):
    assert re.findall(r"\b(?:TODO|FIXME|XXX)\b", path.read_text("utf-8")) == []


RULES = (
    _file_is_short,
    _a_small_file_serves_more_than_one,
    _names_are_nouns,
    _one_object_has_one_name,
    _functions_are_short,
    _name_says_something,
    _nothing_is_put_off,
)


# All rules in one test of each module: a test takes longer than a rule.
@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_keeps_all_rules(path):
    for rule in RULES:
        rule(path)


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=_name)
def test_package_opens_with_its_charter_and_holds_no_code(folder):
    tree = _tree(folder / "__init__.py")
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


def test_importing_does_nothing():
    # Ray is for who has a cluster, and too large for everybody else.
    left_out = {"guest"} if importlib.util.find_spec("ray") else {"guest", "ray_fleet"}
    names = [_dotted(path) for path in MODULES if left_out.isdisjoint(path.parts)]
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ""


def _tested(path):
    """The module that a unit test is named after, dotted; its package for a test of the whole."""
    folder = path.relative_to(UNIT_TESTS).parent
    package = PACKAGE.joinpath(*folder.parts)
    names = {module.stem: _dotted(module) for module in package.glob("*.py")}
    names[package.name] = _dotted(package / "__init__.py")
    stem = path.stem.removeprefix("test_")
    named = [name for name in names if f"{stem}_".startswith(f"{name}_")]
    return names[max(named, key=len)] if named else None


@pytest.mark.parametrize("path", TESTS_OF_MODULES, ids=_name)
def test_a_test_lies_and_is_called_as_what_it_tests(path):
    tested = _tested(path)
    assert tested, (
        "move it to the directory of the package it tests, and let its name begin with the module's"
    )
    used = tested.rpartition(".")[2]
    assert re.search(rf"\b{used}\b", path.read_text("utf-8")), f"it does not use {tested}"
