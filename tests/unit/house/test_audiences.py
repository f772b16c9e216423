"""Every notice has one audience: a text's type or module says whether a model reads it."""

import ast
import importlib
import pkgutil
import re

import interpreter_bot
from interpreter_bot import errors
from tests.unit.house import sources

# Modules of which a model alone reads the sentences: prompts, results of tools, descriptions.
OF_MODELS = {
    "agent.observations",
    "agent.picture_selection",
    "agent.prompt_texts",
    "agent.tool_execution",
    "agent.tools",
    "agent.llms.chat_completions",
    "agent.llms.small_model_remedies",
    "guest.file_kinds",
    "mcp_servers.call_results",
    "mcp_servers.model_tool_listings",
    "platforms.mcp.tool_definitions",
    "sessions.note_proposals",
    "sessions.stored_transcripts",
    "sessions.turn_inputs",
}
# Of these modules, the sentences for people.
FOR_PEOPLE_THERE = {"sessions.turn_inputs": {"_NO_FILES"}}
# What only a model is told, and what is said of people only behind their backs.
ADDRESSES_A_MODEL = re.compile(
    r"\[(?:Not run|Your|The person|You )|\brun_code\b|view_image|\bCall again\b|\bAsk them\b"
    r"|\bThe person (?:did|declined|wants|sent|was|stopped)\b|\banswer the person\b",
    re.IGNORECASE,
)
WORDS = 3


def _constants(tree):
    """Give the names of constants, whether they are notes to a model, and their texts."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        called = node.value.func if isinstance(node.value, ast.Call) else None
        kind = ast.unparse(called) if called is not None else ""
        if kind == "re.compile":
            continue
        texts = [
            piece.value
            for piece in ast.walk(node.value)
            if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
        ]
        text = " ".join(texts)
        if any(piece.count(" ") >= WORDS for piece in texts):
            yield ast.unparse(target), kind.endswith("Note"), text


def notices():
    """Give every notice: its place, its audience, its text."""
    for path, (_, tree) in sources.modules().items():
        module = sources.dotted(path)
        for name, is_note, text in _constants(tree):
            is_models = is_note or module in OF_MODELS
            is_models = is_models and name not in FOR_PEOPLE_THERE.get(module, ())
            yield f"{module}.{name}", "model" if is_models else "people", text


def test_no_notice_to_people_addresses_a_model():
    found = [
        f"{place}: {text}"
        for place, audience, text in notices()
        if audience == "people" and (ADDRESSES_A_MODEL.search(text) or text.startswith("["))
    ]
    assert found == []


def test_notes_to_a_model_are_marked_as_such():
    """A model tells them from what a person says by their brackets."""
    found = [
        place
        for place, audience, text in notices()
        if audience == "model" and place.partition(".")[2] and not text.strip().startswith("[")
        if place.rpartition(".")[0] not in OF_MODELS
    ]
    assert found == []


def _all_errors(kind):
    for child in kind.__subclasses__():
        yield child
        yield from _all_errors(child)


def test_every_error_that_ends_a_turn_has_a_sentence_for_people():
    for module in pkgutil.walk_packages(interpreter_bot.__path__, "interpreter_bot."):
        if not re.search(r"\.(?:guest|worker|ray_fleet|__main__)", module.name):
            importlib.import_module(module.name)
    for kind in {*_all_errors(errors.BotError)}:
        sentence = (kind.__doc__ or "").strip()
        assert sentence, kind
        assert not ADDRESSES_A_MODEL.search(sentence), (kind, sentence)
