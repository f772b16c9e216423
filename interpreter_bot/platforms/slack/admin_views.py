"""The admins' part of the home tab, and their settings form. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, get_args

from slack_sdk.models import blocks as slack_blocks
from slack_sdk.models import views
from slack_sdk.models.blocks import basic_components, block_elements

from interpreter_bot.platforms.chat import policies
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
    holds: policies.Rules
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
    chooser = block_elements.UserSelectElement(
        action_id=PERSON,
        placeholder=slack_words.SHOW_USAGE,
        initial_user=governed.person or None,
    )
    return [*made, blocks.actions(chooser.to_dict())]


def _list(ids: Collection[policies.Id], form: str) -> str:
    # Ids come from a form or from the settings; what is none is shown as it is.
    named = [form.format(one) if one.isalnum() else markdown.escaped(one) for one in map(str, ids)]
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(named[:_MAX_LISTED]) + more if ids else "all"


def _session(overview: past_turns.SessionOverview) -> list[blocks.Block]:
    key = home_and_modal_views.key(overview)
    kill = blocks.button("Kill", KILL, key)
    delete = blocks.button("Delete", DELETE, key, style="danger")
    kill["confirm"] = _confirmation(slack_words.KILL, slack_words.KILLED, "Kill")
    delete["confirm"] = _confirmation(slack_words.DELETE, slack_words.DELETED, "Delete")
    return [
        blocks.section(home_and_modal_views.session_text(overview)),
        blocks.actions(kill, delete),
    ]


def _confirmation(title: str, text: str, yes: str) -> blocks.Block:
    text_object = basic_components.PlainTextObject(text=text)
    confirmation = basic_components.ConfirmObject(
        title=title, text=text_object, confirm=yes, deny="Keep"
    )
    return confirmation.to_dict()


def form(chosen: Mapping[str, Any]) -> home_and_modal_views.View:
    """Build the settings form.

    Args:
        chosen: by name, what the workspace chose itself.
    """
    follows = chosen.get(permissions.FOLLOWING)
    switch = next((word for word, is_on in _SWITCH.items() if is_on is follows), _AS_SET)
    approval = chosen.get(permissions.APPROVAL, _AS_SET)
    people = block_elements.UserMultiSelectElement(
        action_id=permissions.PEOPLE, initial_users=chosen.get(permissions.PEOPLE) or None
    )
    groups = _text_field(permissions.GROUPS, " ".join(chosen.get(permissions.GROUPS) or ()))
    channels = block_elements.ConversationMultiSelectElement(
        action_id=permissions.CHANNELS,
        initial_conversations=chosen.get(permissions.CHANNELS) or None,
        filter=block_elements.ConversationFilter(
            include=["public", "private"], exclude_bot_users=True
        ),
    )
    tokens, money = (
        _text_field(name, chosen.get(name), max_length=20)
        for name in (permissions.TOKENS, permissions.MONEY)
    )
    view = views.View(
        type="modal",
        callback_id=FORM,
        title=slack_words.ACCESS,
        submit="Save",
        close="Cancel",
        blocks=[
            _input(slack_words.PEOPLE, people),
            _input(slack_words.GROUPS, groups),
            _input(slack_words.CHANNELS, channels),
            _input(
                slack_words.APPROVAL,
                _select(permissions.APPROVAL, get_args(requests.Approval), approval),
            ),
            _input(slack_words.FOLLOWING, _select(permissions.FOLLOWING, tuple(_SWITCH), switch)),
            _input(slack_words.TOKENS, tokens),
            _input(slack_words.MONEY, money),
        ],
    )
    return view.to_dict()


def _text_field(name: str, text: object, **options: Any) -> block_elements.PlainTextInputElement:
    initial = str(text) if text else None
    return block_elements.PlainTextInputElement(action_id=name, initial_value=initial, **options)


def _input(label: str, element: block_elements.InputInteractiveElement) -> slack_blocks.InputBlock:
    return slack_blocks.InputBlock(
        block_id=element.action_id,
        label=label,
        hint=slack_words.OPERATORS_SETTING,
        element=element,
        optional=True,
    )


def _select(name: str, titles: Sequence[str], chosen: str) -> block_elements.StaticSelectElement:
    options = [
        basic_components.Option(text=blocks.plain(title), value=title)
        for title in (_AS_SET, *titles)
    ]
    initial = next((option for option in options if option.value == chosen), options[0])
    return block_elements.StaticSelectElement(
        action_id=name, options=options, initial_option=initial
    )


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
