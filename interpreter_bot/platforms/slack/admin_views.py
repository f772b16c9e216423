"""The admins' part of the home tab, and their settings form. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.platforms.slack import blocks, home_and_modal_views, markdown, permissions
from interpreter_bot.sessions import past_turns, requests
from interpreter_bot.wording import slack_words

KILL: Final = "home_kill"
DELETE: Final = "home_delete"
CHANGE: Final = "home_change"
PERSON: Final = "home_person"
FORM: Final = "governing_form"

_MAX_SESSIONS: Final = 12
_MAX_LISTED: Final = 50
_GROUP: Final = re.compile(r"\bS[A-Z0-9]{1,30}\b")
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,14}")
_AMOUNT: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
_AS_SET: Final = "as set"
_SWITCH: Final = {"yes": True, "no": False}
_NAMES: Final = (
    *(permissions.PEOPLE, permissions.GROUPS, permissions.CHANNELS),
    *(permissions.APPROVAL, permissions.FOLLOWING),
    *(permissions.TOKENS, permissions.MONEY),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdminForm:
    """Data of the admins' part.

    Attributes:
        everybody: all sessions of the workspace.
        holds: the lists in effect.
        follows_threads: threads of one person are answered without a mention.
        approval: the strictest of choices and settings.
        feedback: how many answers were rated good, and how many bad.
        person: whose usage is shown; empty for none.
        name: their name.
        usage: theirs.
    """

    everybody: Sequence[past_turns.SessionOverview]
    holds: permissions.AllowLists
    follows_threads: bool
    approval: requests.Approval
    feedback: tuple[int, int] = (0, 0)
    person: str = ""
    name: str = ""
    usage: past_turns.UsageSummary | None = None


def admin_section(governed: AdminForm) -> list[blocks.Block]:
    """Build the admins' part of the home tab."""
    made = [home_and_modal_views.heading(slack_words.ALL_SESSIONS)]
    for overview in governed.everybody[:_MAX_SESSIONS]:
        made += _session(overview)
    holds = governed.holds
    listed = (
        ("People", holds.people, "<@{}>"),
        ("User groups", holds.groups, "{}"),
        ("Channels", holds.channels, "<#{}>"),
    )
    lines = [f"*{what}:* {_list(ids, form)}" for what, ids, form in listed]
    lines.append(f"*Asked before code runs:* {governed.approval}")
    lines.append(f"*Answers without a mention:* {'yes' if governed.follows_threads else 'no'}")
    change = blocks.actions(blocks.button("Change", CHANGE, "change"))
    made += [
        home_and_modal_views.heading(slack_words.ACCESS),
        blocks.section("\n".join(lines)),
        change,
    ]
    good, bad = governed.feedback
    made += [
        home_and_modal_views.heading(slack_words.USAGE),
        blocks.section(f"Answers: {good} good, {bad} bad"),
    ]
    if governed.usage is not None:
        name = markdown.escaped(governed.name)
        made.append(blocks.section(f"*{name}* today: {session_facts.today(governed.usage)}"))
    return [*made, blocks.actions(_chooser(governed.person))]


def _list(ids: Sequence[str], form: str) -> str:
    # Ids come from a form or from the settings; what is none is shown as it is.
    named = [form.format(one) if one.isalnum() else markdown.escaped(one) for one in ids]
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(named[:_MAX_LISTED]) + more if ids else "all"


def _chooser(person: str) -> blocks.Block:
    made = {
        "type": "users_select",
        "action_id": PERSON,
        "placeholder": blocks.plain(slack_words.SHOW_USAGE),
    }
    return made | ({"initial_user": person} if person else {})


def _session(overview: past_turns.SessionOverview) -> list[blocks.Block]:
    key = home_and_modal_views.key(overview)
    kill = blocks.button("Kill", KILL, key)
    delete = blocks.button("Delete", DELETE, key, style="danger")
    kill["confirm"] = _confirmation(
        slack_words.KILL,
        slack_words.KILLED,
        "Kill",
    )
    delete["confirm"] = _confirmation(slack_words.DELETE, slack_words.DELETED, "Delete")
    return [
        blocks.section(home_and_modal_views.session_text(overview)),
        blocks.actions(kill, delete),
    ]


def _confirmation(title: str, text: str, yes: str) -> blocks.Block:
    return {
        "title": blocks.plain(title, 100),
        "text": blocks.plain(text, 300),
        "confirm": blocks.plain(yes, 30),
        "deny": blocks.plain("Keep", 30),
    }


def form(chosen: Mapping[str, Any]) -> home_and_modal_views.View:
    """Build the settings form.

    Args:
        chosen: by name, what the workspace chose itself.
    """
    people, groups, channels = _lists(chosen)
    tokens, money = (_number(chosen.get(name)) for name in (permissions.TOKENS, permissions.MONEY))
    follows = chosen.get(permissions.FOLLOWING)
    switch = next((word for word, is_on in _SWITCH.items() if is_on is follows), _AS_SET)
    approval = chosen.get(permissions.APPROVAL, _AS_SET)
    return {
        "type": "modal",
        "callback_id": FORM,
        "title": blocks.plain(slack_words.ACCESS, 24),
        "submit": blocks.plain("Save", 24),
        "close": blocks.plain("Cancel", 24),
        "blocks": [
            _input(permissions.PEOPLE, slack_words.PEOPLE, people),
            _input(permissions.GROUPS, slack_words.GROUPS, groups),
            _input(permissions.CHANNELS, slack_words.CHANNELS, channels),
            _input(
                permissions.APPROVAL,
                slack_words.APPROVAL,
                _select(get_args(requests.Approval), approval),
            ),
            _input(
                permissions.FOLLOWING,
                slack_words.FOLLOWING,
                _select(tuple(_SWITCH), switch),
            ),
            _input(permissions.TOKENS, slack_words.TOKENS, tokens),
            _input(permissions.MONEY, slack_words.MONEY, money),
        ],
    }


def _lists(chosen: Mapping[str, Any]) -> tuple[blocks.Block, blocks.Block, blocks.Block]:
    people: blocks.Block = {"type": "multi_users_select"}
    channels: blocks.Block = {
        "type": "multi_conversations_select",
        "filter": {"include": ["public", "private"], "exclude_bot_users": True},
    }
    groups: blocks.Block = {"type": "plain_text_input"}
    if listed := chosen.get(permissions.PEOPLE):
        people["initial_users"] = list(listed)
    if listed := chosen.get(permissions.CHANNELS):
        channels["initial_conversations"] = list(listed)
    if listed := chosen.get(permissions.GROUPS):
        groups["initial_value"] = " ".join(listed)
    return people, groups, channels


def _number(chosen: object) -> blocks.Block:
    element: blocks.Block = {"type": "plain_text_input", "max_length": 20}
    return element | ({"initial_value": str(chosen)} if chosen is not None else {})


def _input(name: str, label: str, element: blocks.Block) -> blocks.Block:
    return {
        "type": "input",
        "block_id": name,
        "label": blocks.plain(label, 200),
        "hint": blocks.plain(slack_words.OPERATORS_SETTING, 200),
        "element": {**element, "action_id": name},
        "optional": True,
    }


def _select(titles: Sequence[str], chosen: str) -> blocks.Block:
    options = [{"text": blocks.plain(one), "value": one} for one in (_AS_SET, *titles)]
    found = next((one for one in options if one["value"] == chosen), options[0])
    return {"type": "static_select", "options": options, "initial_option": found}


def submitted_choices(view: home_and_modal_views.View) -> dict[str, object | None]:
    """Parse the submitted form: choices by name; None if the settings are to be in effect."""
    state = view.get("state", {}).get("values", {})
    given = {name: (state.get(name) or {}).get(name) or {} for name in _NAMES}
    option = {name: (given[name].get("selected_option") or {}).get("value") for name in _NAMES}
    approval = option[permissions.APPROVAL]
    return {
        permissions.PEOPLE: given[permissions.PEOPLE].get("selected_users") or None,
        permissions.GROUPS: _GROUP.findall(given[permissions.GROUPS].get("value") or "") or None,
        permissions.CHANNELS: given[permissions.CHANNELS].get("selected_conversations") or None,
        permissions.APPROVAL: approval if approval in get_args(requests.Approval) else None,
        permissions.FOLLOWING: _SWITCH.get(str(option[permissions.FOLLOWING])),
        permissions.TOKENS: _typed_number(given[permissions.TOKENS], _WHOLE),
        permissions.MONEY: _typed_number(given[permissions.MONEY], _AMOUNT),
    }


def _typed_number(given: Mapping[str, Any], form: re.Pattern[str]) -> str | None:
    """Parse a typed number; None for anything else, which leaves it to the settings."""
    text = str(given.get("value") or "").strip().replace(",", "").replace("_", "")
    return text if form.fullmatch(text) else None
