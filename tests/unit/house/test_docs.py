"""README and docs: links lead somewhere, commands parse, names of settings exist."""

import ast
import itertools
import json
import re
import runpy
import shlex

from interpreter_bot import settings
from interpreter_bot.commands import options
from interpreter_bot.setting_groups import unknown_names
from tests.unit.house import sources

ROOT = sources.ROOT
MANUAL = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
TEXTS = [
    *MANUAL,
    ROOT / "ARCHITECTURE.md",
    ROOT / "tests/README.md",
    *ROOT.glob("deploy/*/README.md"),
]
MAX_README_LINES = 200
MAX_IMAGE_BYTES = 150_000
GROUPS = settings.Settings.model_fields
SOURCES = "\n".join(text for text, _ in sources.modules().values())
TARGETS = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def blocks(path, language):
    """The fenced blocks of a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def prose(path):
    return re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path):
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(path):
    """The commands of `sh` blocks, a list of words each, comments left out."""
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            yield from _simple(words)


def _simple(words):
    """Take a line apart at its pipes and `&&`."""
    command = []
    for word in [*words, "|"]:
        if word not in ("|", "&&"):
            command.append(word)
        elif command:
            yield command
            command = []


def test_links_lead_to_files_and_headings():
    broken = []
    for path in TEXTS:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text("utf-8")):
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((path.name, link))
    assert broken == []


def test_commands_parse():
    for words in itertools.chain.from_iterable(map(commands, MANUAL)):
        variables = {word.partition("=")[0] for word in words if re.match(r"[A-Z_]+=", word)}
        assert _unknown(variables) == []
        while words and ("=" in words[0] or words[0] == "export"):
            words = words[1:]
        if words[:1] == ["make"]:
            assert set(words[1:]) <= set(TARGETS)
        elif words and words[0].endswith("interpreter-bot"):
            until = next((n for n, word in enumerate(words) if word in ("<", ">")), None)
            assert options.read(words[1:until]).module, words


def test_examples_are_valid(tmp_path):
    file = tmp_path / "example.toml"
    for path in MANUAL:
        for block in blocks(path, "json"):
            json.loads(block)
        for block in blocks(path, "toml"):
            file.write_text(block, "utf-8")
            settings.load(file)


def test_settings_that_are_mentioned_exist():
    known = set(unknown_names.dotted_names(settings.Settings))
    text = "".join(path.read_text("utf-8") for path in MANUAL)
    dotted = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?: = [^`]*)?`", "".join(map(prose, MANUAL)))
    missing = [name for name in dotted if name.partition(".")[0] in GROUPS and name not in known]
    assert missing == []
    assert _unknown(set(re.findall(r"\bINTERPRETER_BOT_[A-Z_]+", text))) == []
    others = set(re.findall(r"\b(?:OPENAI|ANTHROPIC|SLACK|DISCORD)_[A-Z_]+", text))
    assert [name for name in others if f'"{name}"' not in SOURCES] == []


def test_settings_that_sentences_name_exist():
    known = set(unknown_names.dotted_names(settings.Settings))
    text = "\n".join(
        node.value
        for path in (ROOT / "interpreter_bot/wording").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    dotted = re.findall(r"(?<![\w/`.-])([a-z_]+\.[a-z_]+)\b(?![(/])", text)
    assert [name for name in dotted if name.partition(".")[0] in GROUPS and name not in known] == []


def _unknown(variables):
    """Those of our variables that set nothing."""
    known = {
        f"INTERPRETER_BOT_{name.upper()}".replace(".", "__")
        for name in unknown_names.dotted_names(settings.Settings)
    }
    return sorted(
        name for name in variables if name.startswith("INTERPRETER_BOT_") and name not in known
    )


def test_what_is_generated_is_fresh():
    for name, text in runpy.run_path(str(ROOT / "docs/generate.py"))["generate"]().items():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, "run `make docs`"


def test_the_readme_is_short_and_names_each_page():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= MAX_README_LINES
    assert [path.name for path in MANUAL[1:] if f"(docs/{path.name})" not in readme] == []


def test_images_are_small_and_used():
    shown = "".join(path.read_text("utf-8") for path in MANUAL)
    for image in (ROOT / "docs/images").iterdir():
        assert image.stat().st_size <= MAX_IMAGE_BYTES
        assert image.name in shown
