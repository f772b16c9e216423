"""Write what docs/ and manifest.yml have of the code: settings, figures, commands. `make docs` runs
it; a test says if it is stale."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import pathlib
import re
import types
import typing
from collections.abc import Iterator

import pydantic

from interpreter_bot import settings
from interpreter_bot.platforms import command_table

DOCS = pathlib.Path(__file__).parent
RESULTS = DOCS.parent / "bench/results"
_MEASURES = (
    ("engine", "session wanted → stack imported, spare"),
    ("engine", "session wanted → stack imported, no spare"),
    ("engine", "1+1 round trip"),
    ("kernels", "private memory of an idle kernel"),
    ("kernels", "100 sessions: without an answer"),
    ("kernels", "100 sessions: memory of the bot"),
    ("kernels", "100 sessions, 8 computing: loop lag"),
    ("kernels", "flood (print): the bot grows"),
    ("kernels", "flood (print): 1+1 of another"),
    ("first_answers", "exec of print(6 * 7): command to output"),
    ("first_answers", "ask, instant model: command to first word"),
    ("first_answers", "run: command to the page's address"),
    ("first_answers", "run: command to a usable page"),
    ("engine", "100 sessions start at once: the first answer"),
    ("engine", "200 sessions start at once: without an answer"),
    ("engine", "500 idle kernels, control groups: processor of bot and kernels"),
    ("engine", "500 idle kernels, watched: processor of bot and kernels"),
    ("loads", "8 busy sessions of one person, one of another: what the one gets"),
    ("conversations", "turn in a live session, without model and code"),
    ("conversations", "page: message sent to first sign of life"),
    ("conversations", "50 sessions at once, 2 plots each: unfinished or mixed up"),
    ("conversations", "50 sessions at once, 2 plots each: memory of the bot"),
    ("conversations", "512 MiB through the page: growth of the bot"),
    ("browser_timings", "page: usable"),
    ("browser_timings", "page of 200 turns, 50 pictures, 20 tables: key to paint"),
    ("browser_timings", "page there: frames of 10,000 tokens"),
    (
        "restarts",
        "kill -9 of the bot in a cell that prints each 0.5 s: start to first caught-up line",
    ),
    ("kills", "200 kills: lost unsaid, or done or recorded twice"),
    ("outside", "round trip through a tunnel"),
    ("outside", "100 MB through a tunnel"),
    ("outside", "1,000,000 rows of 10 columns from PostgreSQL as a DataFrame"),
    ("packages", "cached packages into a live kernel"),
    ("packages", "new packages into a live kernel"),
)
# What depends on the machine.
_DEFAULTS = {
    "limits.memory_reserve_bytes": "512 MiB, or 1/16 of the memory if that is less",
    "paths.data": "`/var/lib/interpreter-bot` for root, else `~/.local/state/interpreter-bot`",
    "paths.runtime": "`/run/interpreter-bot` for root, else in `$XDG_RUNTIME_DIR` or `/tmp`",
}
_UNITS = {
    "seconds": "seconds",
    "minutes": "minutes",
    "days": "days",
    "bytes": "bytes",
    "tokens": "tokens",
    "characters": "characters",
    "price": "money per million tokens",
    "money": "money",
}
_TYPES = {bool: "`true` or `false`", int: "number", float: "number", dict: "table", tuple: "list"}
_PLATFORMS = {"slack": "Slack", "discord": "Discord", "web": "page", "console": "terminal"}
_MANIFEST = "../manifest.yml"
_STATISTICS = {"p50": "median", "most": "maximum"}
_SIZES = ((settings.GIB, "GiB"), (settings.MIB, "MiB"), (settings.KIB, "KiB"))


def generate() -> dict[str, str]:
    """Return the text of each file, with what stands between its comments written again."""
    texts = {}
    parts = {
        "configuration.md": _configuration(),
        "benchmarks.md": _figures(),
        "slack.md": _commands(),
    }
    for name, part in parts.items():
        before, comment, rest = re.split(r"(<!-- .*`make docs` .*-->\n)", (DOCS / name).read_text())
        texts[name] = f"{before}{comment}{part}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    manifest = (DOCS / _MANIFEST).read_text("utf-8")
    names = " | ".join(name for name in command_table.commands_of("slack") if name != "py")
    pattern = r"(command: /interpreter\n.*\n +usage_hint: ).*"
    texts[_MANIFEST] = re.sub(pattern, rf'\g<1>"[{names}]"', manifest)
    return texts


def _commands() -> str:
    """Write the table of the commands in chats."""
    rows = ["| command | effect | where |", "|---|---|---|"]
    chats = command_table.commands_of("slack") | command_table.commands_of("discord")
    for command in chats.values():
        names = [name for key, name in _PLATFORMS.items() if key in command.platforms]
        where = "everywhere" if len(names) == len(_PLATFORMS) else ", ".join(names)
        platform = "slack" if "slack" in command.platforms else "discord"
        usage = command.usage(platform).replace("|", "\\|")
        rows.append(f"| `{usage}` | {command.help} | {where} |")
    return "\n".join([*rows, ""])


def _configuration() -> str:
    """Write a section for each group of settings."""
    fields = settings.Settings.model_fields
    contents = " · ".join(f"[{name}](#{name})" for name in fields)
    parts = [f"## All settings\n\n{contents}\n"]
    for name, field in fields.items():
        group, *_ = _groups(field.annotation)
        parts += _sections(name, group, is_list=typing.get_origin(field.annotation) is tuple)
    return "\n".join(parts)


def _sections(name: str, group: type[pydantic.BaseModel], *, is_list: bool) -> Iterator[str]:
    """Write a table of settings, then the tables within."""
    brackets = f"`[[{name}]]`, one table for each" if is_list else f"`[{name}]`"
    about = inspect.cleandoc(group.__doc__ or "")
    yield f"### {name}\n\n{brackets}\n\n{about}\n"
    rows = ["| setting | type or unit | default | meaning |", "|---|---|---|---|"]
    meanings = _attribute_docstrings(group)
    inner = []
    for key, field in group.model_fields.items():
        if nested := list(_groups(field.annotation)):
            inner.append((f"{name}.{key}", nested[0]))
        unit, default = _unit(key, field.annotation), _default(f"{name}.{key}", field)
        rows.append(f"| `{key}` | {unit} | {default} | {meanings[key]} |")
    yield "\n".join([*rows, ""])
    for dotted, nested_group in inner:
        yield from _sections(dotted, nested_group, is_list=False)


def _attribute_docstrings(group: type) -> dict[str, str]:
    """Return the strings that follow a class's attributes."""
    body = ast.parse(inspect.getsource(group)).body[0].body
    return {
        field.target.id: " ".join(text.value.value.split()).replace("|", "\\|")
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _groups(annotation: object) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _groups(argument)


def _unit(name: str, annotation: object) -> str:
    """Return a setting's unit by its name, else its type."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        annotation = typing.get_args(annotation)[0]
        origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if origin is typing.Literal:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in typing.get_args(annotation))
    if typing.get_origin(origin) is None and origin in _TYPES:
        return _TYPES[origin]
    if list(_groups(annotation)):
        return "table"
    if unit := _UNITS.get(name.rpartition("_")[2]):
        return unit
    if annotation is pathlib.Path:
        return "path"
    return _TYPES.get(annotation, "text")


def _default(dotted: str, field: pydantic.fields.FieldInfo) -> str:
    """Return a default as it is written in the file."""
    if dotted in _DEFAULTS:
        return _DEFAULTS[dotted]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, pydantic.SecretStr):
        value = value.get_secret_value()
    if value in (None, "", (), {}):
        return "unset" if value is None else "empty"
    if isinstance(value, int) and value and dotted.endswith("bytes"):
        size, unit = next((size, unit) for size, unit in _SIZES if value >= size)
        return f"`{value:_}` ({value / size:.3g} {unit})"
    if isinstance(value, (bool, str, tuple)):
        return f"`{json.dumps(value)}`"
    return f"`{value:,}`".replace(",", "_").replace(".0`", "`")


def _figures() -> str:
    """Write the table of figures."""
    rows = ["| measure | figure | goal | alternative, same run |", "|---|---|---|---|"]
    for file, name in _MEASURES:
        measures = json.loads((RESULTS / f"{file}.json").read_text("utf-8"))["measures"]
        measure = next(entry for entry in measures if entry["name"] == name)
        statistic, unit, other = measure["statistic"], measure["unit"], measure["alternative"]
        figure = f"{_rounded(measure[statistic])} {unit}".strip()
        if measure["n"] > 1:
            figure += f", {_STATISTICS.get(statistic, statistic)}"
        goals = [] if measure["bar"] is None else [f"≤ {measure['bar']:g} {unit}".strip()]
        if measure["least_ratio"]:
            goals.append(f"≥ {measure['least_ratio']:.2g} times as fast as the alternative")
        if measure["is_met"] is False:
            goals.append("**missed**")
        against = f"{_rounded(other[statistic])} {unit}: {other['name']}" if other else ""
        link = f"[{name}](../bench/results/{file}.json)"
        rows.append(f"| {link} | {figure} | {'; '.join(goals)} | {against} |")
    return "\n".join([*rows, ""])


def _rounded(value: float) -> str:
    """Write a number with three digits that count."""
    return f"{float(f'{value:.3g}'):,g}"


if __name__ == "__main__":
    for name, text in generate().items():
        (DOCS / name).write_text(text, "utf-8")
