"""Sentences for people stand in `wording`: no other module has one of its own."""

import ast
import collections
import pathlib
import re

import interpreter_bot
from tests.unit.house import test_audiences

PACKAGE = pathlib.Path(interpreter_bot.__file__).parent
# They run in kernels, are beneath `wording`, or declare what `--help` and docs show.
ELSEWHERE = (
    "wording/",
    "guest/",
    "doctor/in_kernel_",
    "setting_groups/",
    "text/",
    "errors.py",
    "commands/options.py",
    "platforms/command_table.py",
)
# These speak to models, or to agents that use the bot over MCP.
FOR_MODELS = {
    *test_audiences.OF_MODELS,
    "agent.llms.small_model_remedies",
    "mcp_servers.definitions",
    "skills.skill_catalogue",
}
SENTENCE = re.compile(r"(?:[A-Z][a-z' ]|\{).*\s.*\s.*[.?!…]\s*", re.DOTALL)


def _literal(node):
    """Return a text as it stands in the code, with braces for its values; None if it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    return None


def _logged_names(tree):
    """Return the names of constants that are only logged."""
    calls = [node for node in ast.walk(tree) if _is_log(node) and node.args]
    return {node.args[0].id for node in calls if isinstance(node.args[0], ast.Name)}


def _is_log(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("_log.", "log."))


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_left_out(node, logged):
    """Return whether what stands here is for the log, a model, or who reads the code."""
    if isinstance(node, ast.AnnAssign | ast.Assign):
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        return ast.unparse(target) in logged
    is_note = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
        ("Note", "Prompt", "compile")
    )
    return is_note or _is_log(node) or _is_docstring(node)


def sentences(node, logged):
    """Give the line and the text of each sentence for people in some code."""
    text = _literal(node)
    if text is not None:
        if SENTENCE.fullmatch(text):
            yield node.lineno, text
        return
    for child in ast.iter_child_nodes(node):
        if not _is_left_out(child, logged):
            yield from sentences(child, logged)


def test_sentences_for_people_stand_in_the_words():
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        module = path.removesuffix(".py").replace("/", ".")
        if path.startswith(ELSEWHERE) or module in FOR_MODELS:
            continue
        tree = ast.parse(file.read_text("utf-8"))
        found += [f"{path}:{line}: {text}" for line, text in sentences(tree, _logged_names(tree))]
    assert found == []


def test_each_sentence_is_used():
    files = {file: file.read_text("utf-8") for file in PACKAGE.rglob("*.py")}
    used = {name for text in files.values() for name in re.findall(r"\w+_words\.\w+", text)}
    unused = []
    for file in sorted((PACKAGE / "wording").glob("*_words.py")):
        names = collections.Counter(re.findall(r"\w+", files[file]))
        for node in ast.parse(files[file]).body:
            if isinstance(node, ast.AnnAssign | ast.FunctionDef):
                is_constant = isinstance(node, ast.AnnAssign)
                name = ast.unparse(node.target) if is_constant else node.name
                if f"{file.stem}.{name}" not in used and names[name] < 2:
                    unused.append(f"{file.stem}.{name}")
    assert unused == []
