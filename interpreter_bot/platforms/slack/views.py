"""Forms and the home tab, as Slack wants them. Pure."""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Sequence
from typing import Any, Final

from interpreter_bot.platforms.slack import blocks, commands, markdown, turning
from interpreter_bot.sessions import overviews

RUN_FORM: Final = "run_form"
ASK_FORM: Final = "ask_form"
EDIT_FORM: Final = "edit_form"
ANSWER_FORM: Final = "answer_form"
FIELD: Final = "field"

HOME_RESET: Final = "home_reset"
HOME_STOP: Final = "home_stop"
HOME_DELETE: Final = "home_delete"
HOME_MODEL: Final = "home_model"
HOME_ALLOWED: Final = "home_allowed"
HOME_REFRESH: Final = "home_refresh"
ALLOWED_FORM: Final = "allowed_form"

_MOST_CHARACTERS: Final = 3_000
_MOST_OWN: Final = 12
_MOST_ALL: Final = 12
_MOST_MODELS: Final = 100
_DEFAULT_MODEL: Final = "(default)"

View = dict[str, Any]


def form(
    callback: str,
    title: str,
    label: str,
    *,
    submit: str,
    facts: str,
    initial: str = "",
    is_optional: bool = False,
) -> View:
    """Make a form with one large field."""
    element: dict[str, Any] = {
        "type": "plain_text_input",
        "action_id": FIELD,
        "multiline": True,
        "max_length": _MOST_CHARACTERS,
        "focus_on_load": True,
    }
    if initial:
        element["initial_value"] = initial[:_MOST_CHARACTERS]
    block = {"type": "input", "block_id": FIELD, "label": blocks.plain(label, 200)}
    return {
        "type": "modal",
        "callback_id": callback,
        "private_metadata": facts,
        "title": blocks.plain(title, 24),
        "submit": blocks.plain(submit, 24),
        "close": blocks.plain("Cancel", 24),
        "blocks": [block | {"element": element, "optional": is_optional}],
    }


def field(view: View) -> str:
    """Read what was written into a form."""
    state = view.get("state", {}).get("values", {})
    return str(state.get(FIELD, {}).get(FIELD, {}).get("value") or "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What the home tab shows.

    Attributes:
        own: the person's conversations.
        everybody: all of the workspace; None for whoever is no admin.
        allowed: ids that admins let in besides the settings; None for whoever is no admin.
    """

    own: Sequence[overviews.Overview]
    models: Sequence[str]
    usage: overviews.Usage
    notice: str = ""
    everybody: Sequence[overviews.Overview] | None = None
    allowed: Sequence[str] | None = None


def home(shown: Home) -> View:
    """Make the home tab."""
    made: list[blocks.Block] = [_heading("Your sessions")]
    if shown.notice:
        made.append(blocks.note(shown.notice))
    if not shown.own:
        made.append(blocks.section("None yet. Mention me in a channel, or send me a message."))
    for overview in shown.own[:_MOST_OWN]:
        made += _session(overview, shown.models)
    made += [_heading("Your use today"), blocks.section(_usage(shown.usage))]
    if shown.everybody is not None:
        made.append(_heading("All sessions"))
        for overview in shown.everybody[:_MOST_ALL]:
            made += _session_of_others(overview)
        made += _people(shown.allowed or ())
    made.append(blocks.actions(blocks.button("Refresh", HOME_REFRESH, "home")))
    made.append(blocks.section(markdown.escaped(commands.HELP.replace("**", "*"))))
    return {"type": "home", "blocks": made[:100]}


def _heading(text: str) -> blocks.Block:
    return {"type": "header", "text": blocks.plain(text, 150)}


def _told(overview: overviews.Overview) -> str:
    title = markdown.escaped(markdown.one_line(overview.title, 100)) or "Untitled"
    where = overview.key.channel
    place = "a direct message" if where.startswith("D") else f"channel {where}"
    state = "at work" if overview.is_busy else "idle" if overview.has_kernel else "asleep"
    memory = ""
    if overview.memory_bytes is not None:
        memory = f", {commands.size(overview.memory_bytes)} of memory"
    used = f"{overview.used:%Y-%m-%d %H:%M} UTC"
    return f"*{title}*\n{place}, {state}{memory}, last used {used}"


def _session(overview: overviews.Overview, models: Sequence[str]) -> list[blocks.Block]:
    key = turning.stop_key(overview.key)
    row: list[blocks.Block] = []
    if overview.is_busy:
        row.append(blocks.button("Stop", HOME_STOP, key, style="danger"))
    row.append(blocks.button("Reset", HOME_RESET, key))
    if models:
        row.append(_models(overview, models, key))
    return [blocks.section(_told(overview)), blocks.actions(*row)]


def _models(overview: overviews.Overview, models: Sequence[str], key: str) -> blocks.Block:
    # The value of an option is short: the conversation is named by its place in the list.
    titles = [_DEFAULT_MODEL, *models][:_MOST_MODELS]
    options = [
        {"text": blocks.plain(title), "value": f"{number} {key}"[:150]}
        for number, title in enumerate(titles)
    ]
    chosen = titles.index(overview.model) if overview.model in titles else 0
    return {
        "type": "static_select",
        "action_id": HOME_MODEL,
        "options": options,
        "initial_option": options[chosen],
    }


def model_chosen(value: str, models: Sequence[str]) -> tuple[str, str | None]:
    """Read which conversation gets which model; None is the default."""
    number, _, key = value.partition(" ")
    index = int(number) - 1 if number.isdigit() else -1
    return key, models[index] if 0 <= index < len(models) else None


def _session_of_others(overview: overviews.Overview) -> list[blocks.Block]:
    key = turning.stop_key(overview.key)
    stop = blocks.button("Stop", HOME_STOP, key)
    delete = blocks.button("Delete", HOME_DELETE, key, style="danger")
    delete["confirm"] = {
        "title": blocks.plain("Delete this session?", 100),
        "text": blocks.plain("Its variables, files and history are gone for good.", 300),
        "confirm": blocks.plain("Delete", 30),
        "deny": blocks.plain("Keep", 30),
    }
    row = [stop, delete] if overview.is_busy else [delete]
    return [blocks.section(_told(overview)), blocks.actions(*row)]


def _people(allowed: Sequence[str]) -> list[blocks.Block]:
    listed = ", ".join(markdown.escaped(user) for user in allowed)
    text = f"People let in here: {listed or 'everybody whom the settings let in'}."
    return [
        _heading("Who may"),
        blocks.section(text),
        blocks.actions(blocks.button("Change", HOME_ALLOWED, "allowed")),
    ]


def _usage(usage: overviews.Usage) -> str:
    today = usage.today
    tokens = f"{today.input_tokens + today.output_tokens:,}"
    most = "no limit" if usage.allowed_tokens is None else f"{usage.allowed_tokens:,} allowed"
    money = f"{today.money:.4f}"
    spendable = _allowed(usage.allowed_money)
    return f"{tokens} tokens ({most}), {money} of money ({spendable})"


def _allowed(money: decimal.Decimal | None) -> str:
    return "no limit" if money is None else f"{money:.2f} allowed"
