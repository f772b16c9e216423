"""Sentences for people stand in `wording`: no other module has one of its own."""

import ast
import collections
import re

from tests.unit.house import sources, test_audiences

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
    logger = getattr(node.func, "value", None) if isinstance(node, ast.Call) else None
    return isinstance(logger, ast.Name) and logger.id in ("_log", "log")


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_left_out(node, logged):
    """Return whether what stands here is for the log, a model, or who reads the code."""
    if isinstance(node, ast.AnnAssign | ast.Assign):
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        return getattr(target, "id", "") in logged
    called = getattr(node, "func", None)
    name = getattr(called, "attr", getattr(called, "id", ""))
    is_note = name.endswith(("Note", "Prompt", "compile"))
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
    for path, (_, tree) in sources.modules().items():
        if path.startswith(ELSEWHERE) or sources.dotted(path) in FOR_MODELS:
            continue
        found += [f"{path}:{line}: {text}" for line, text in sentences(tree, _logged_names(tree))]
    assert found == []


def test_each_sentence_is_used():
    modules = sources.modules()
    used = {name for text, _ in modules.values() for name in re.findall(r"\w+_words\.\w+", text)}
    unused = []
    for path in [path for path in modules if re.fullmatch(r"wording/\w+_words.py", path)]:
        text, tree = modules[path]
        file = sources.dotted(path).removeprefix("wording.")
        names = collections.Counter(re.findall(r"\w+", text))
        for node in tree.body:
            if isinstance(node, ast.AnnAssign | ast.FunctionDef):
                is_constant = isinstance(node, ast.AnnAssign)
                name = ast.unparse(node.target) if is_constant else node.name
                if f"{file}.{name}" not in used and names[name] < 2:
                    unused.append(f"{file}.{name}")
    assert unused == []
