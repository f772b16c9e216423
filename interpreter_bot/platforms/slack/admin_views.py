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

KILL_SESSION: Final = "home_kill"
DELETE_SESSION: Final = "home_delete"
CHANGE_ACCESS: Final = "home_change"
CHOOSE_PERSON: Final = "home_person"
ACCESS_FORM: Final = "access_form"

_MAX_SESSIONS: Final = 12
_MAX_IDS: Final = 50
_GROUP_ID: Final = re.compile(r"\bS[A-Z0-9]{1,30}\b")
_WHOLE_NUMBER: Final = re.compile(r"[1-9][0-9]{0,14}")
_DECIMAL_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
_OPERATORS_CHOICE: Final = "as set"
_YES_NO: Final = {"yes": True, "no": False}
_CHOICE_NAMES: Final = (
    *(permissions.PEOPLE, permissions.GROUPS, permissions.CHANNELS),
    *(permissions.APPROVAL, permissions.FOLLOWING),
    *(permissions.TOKENS, permissions.MONEY),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdminSection:
    """Data of the admins' part of the home tab.

    Attributes:
        sessions: all sessions of the workspace.
        rules: who may use the bot.
        follows_threads: threads of one person are answered without a mention.
        approval: the strictest of choices and settings.
        feedback: how many answers were rated good, and how many bad.
        person: id of the person whose usage is shown; empty for nobody.
        person_name: the name of that person.
        usage: the usage of that person.
    """

    sessions: Sequence[past_turns.SessionOverview]
    rules: policies.Rules
    follows_threads: bool
    approval: requests.Approval
    feedback: tuple[int, int] = (0, 0)
    person: str = ""
    person_name: str = ""
    usage: past_turns.UsageSummary | None = None


def admin_blocks(section: AdminSection) -> list[blocks.Block]:
    """Build the admins' part of the home tab."""
    result = [home_and_modal_views.heading(slack_words.ALL_SESSIONS)]
    for overview in section.sessions[:_MAX_SESSIONS]:
        result += _session(overview)
    rules = section.rules
    id_lists = (
        ("People", rules.people, "<@{}>"),
        ("User groups", rules.groups, "{}"),
        ("Channels", rules.channels, "<#{}>"),
    )
    lines = [f"*{title}:* {_listing(ids, template)}" for title, ids, template in id_lists]
    lines.append(f"*Asked before code runs:* {section.approval}")
    lines.append(f"*Answers without a mention:* {'yes' if section.follows_threads else 'no'}")
    change_button = blocks.actions(blocks.button("Change", CHANGE_ACCESS, "change"))
    result += [
        home_and_modal_views.heading(slack_words.ACCESS),
        blocks.section("\n".join(lines)),
        change_button,
    ]
    good_count, bad_count = section.feedback
    result += [
        home_and_modal_views.heading(slack_words.USAGE),
        blocks.section(f"Answers: {good_count} good, {bad_count} bad"),
    ]
    if section.usage is not None:
        name = markdown.escape_mrkdwn(section.person_name)
        result.append(
            blocks.section(f"*{name}* today: {session_facts.describe_today(section.usage)}")
        )
    chooser = block_elements.UserSelectElement(
        action_id=CHOOSE_PERSON,
        placeholder=slack_words.SHOW_USAGE,
        initial_user=section.person or None,
    )
    return [*result, blocks.actions(chooser.to_dict())]


def _listing(ids: Collection[policies.Id], template: str) -> str:
    # The settings may list anything; only an id is shown as a mention.
    mentions = [
        template.format(id_) if id_.isalnum() else markdown.escape_mrkdwn(id_)
        for id_ in map(str, ids)
    ]
    suffix = f" and {len(ids) - _MAX_IDS} more" if len(ids) > _MAX_IDS else ""
    return ", ".join(mentions[:_MAX_IDS]) + suffix if ids else "all"


def _session(overview: past_turns.SessionOverview) -> list[blocks.Block]:
    session_value = home_and_modal_views.session_value(overview)
    kill_button = blocks.button("Kill", KILL_SESSION, session_value)
    delete_button = blocks.button("Delete", DELETE_SESSION, session_value, style="danger")
    kill_button["confirm"] = _confirmation(
        slack_words.STOP_QUESTION, slack_words.STOP_CONSEQUENCE, "Kill"
    )
    delete_button["confirm"] = _confirmation(
        slack_words.DELETE_QUESTION, slack_words.DELETE_CONSEQUENCE, "Delete"
    )
    return [
        blocks.section(home_and_modal_views.session_text(overview)),
        blocks.actions(kill_button, delete_button),
    ]


def _confirmation(title: str, text: str, confirm_label: str) -> blocks.Block:
    text_object = basic_components.PlainTextObject(text=text)
    confirmation = basic_components.ConfirmObject(
        title=title, text=text_object, confirm=confirm_label, deny="Keep"
    )
    return confirmation.to_dict()


def access_form(choices: Mapping[str, Any]) -> home_and_modal_views.View:
    """Build the settings form; `choices` are those of the workspace, by name."""
    follows_threads = choices.get(permissions.FOLLOWING)
    threads_choice = next(
        (word for word, is_on in _YES_NO.items() if is_on is follows_threads), _OPERATORS_CHOICE
    )
    approval = choices.get(permissions.APPROVAL, _OPERATORS_CHOICE)
    people = block_elements.UserMultiSelectElement(
        action_id=permissions.PEOPLE, initial_users=choices.get(permissions.PEOPLE) or None
    )
    groups = _text_field(permissions.GROUPS, " ".join(choices.get(permissions.GROUPS) or ()))
    channels = block_elements.ConversationMultiSelectElement(
        action_id=permissions.CHANNELS,
        initial_conversations=choices.get(permissions.CHANNELS) or None,
        filter=block_elements.ConversationFilter(
            include=["public", "private"], exclude_bot_users=True
        ),
    )
    tokens, money = (
        _text_field(name, choices.get(name), max_length=20)
        for name in (permissions.TOKENS, permissions.MONEY)
    )
    view = views.View(
        type="modal",
        callback_id=ACCESS_FORM,
        title=slack_words.ACCESS,
        submit="Save",
        close="Cancel",
        blocks=[
            _input(slack_words.PEOPLE_LABEL, people),
            _input(slack_words.GROUPS_LABEL, groups),
            _input(slack_words.CHANNELS_LABEL, channels),
            _input(
                slack_words.APPROVAL_LABEL,
                _select(permissions.APPROVAL, get_args(requests.Approval), approval),
            ),
            _input(
                slack_words.FOLLOWING_LABEL,
                _select(permissions.FOLLOWING, tuple(_YES_NO), threads_choice),
            ),
            _input(slack_words.TOKENS_LABEL, tokens),
            _input(slack_words.MONEY_LABEL, money),
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


def _select(
    name: str, titles: Sequence[str], selected_value: str
) -> block_elements.StaticSelectElement:
    options = [
        basic_components.Option(text=blocks.plain(title), value=title)
        for title in (_OPERATORS_CHOICE, *titles)
    ]
    initial = next((option for option in options if option.value == selected_value), options[0])
    return block_elements.StaticSelectElement(
        action_id=name, options=options, initial_option=initial
    )


def submitted_choices(view: home_and_modal_views.View) -> dict[str, object | None]:
    """Parse the submitted form: choices by name; None leaves one to the operator's settings."""
    state = view.get("state", {}).get("values", {})
    fields = {name: (state.get(name) or {}).get(name) or {} for name in _CHOICE_NAMES}
    options = {
        name: (fields[name].get("selected_option") or {}).get("value") for name in _CHOICE_NAMES
    }
    approval = options[permissions.APPROVAL]
    return {
        permissions.PEOPLE: fields[permissions.PEOPLE].get("selected_users") or None,
        permissions.GROUPS: _GROUP_ID.findall(fields[permissions.GROUPS].get("value") or "")
        or None,
        permissions.CHANNELS: fields[permissions.CHANNELS].get("selected_conversations") or None,
        permissions.APPROVAL: approval if approval in get_args(requests.Approval) else None,
        permissions.FOLLOWING: _YES_NO.get(str(options[permissions.FOLLOWING])),
        permissions.TOKENS: _parse_number(fields[permissions.TOKENS], _WHOLE_NUMBER),
        permissions.MONEY: _parse_number(fields[permissions.MONEY], _DECIMAL_NUMBER),
    }


def _parse_number(field: Mapping[str, Any], pattern: re.Pattern[str]) -> str | None:
    """Parse a typed number; None for anything else."""
    text = str(field.get("value") or "").strip().replace(",", "").replace("_", "")
    return text if pattern.fullmatch(text) else None
