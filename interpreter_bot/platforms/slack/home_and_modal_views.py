"""Modals and the home tab as Slack views. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slack_sdk.models import blocks as slack_blocks
from slack_sdk.models import views
from slack_sdk.models.blocks import basic_components, block_elements

from interpreter_bot import events
from interpreter_bot.platforms import command_types
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.platforms.slack import blocks, markdown
from interpreter_bot.sessions import past_turns
from interpreter_bot.text import quantities
from interpreter_bot.wording import command_words, question_words, slack_words

RUN_FORM: Final = "run_form"
ASK_FORM: Final = "ask_form"
EDIT_FORM: Final = "edit_form"
ANSWER_FORM: Final = "answer_form"
COMMAND_FORM: Final = "command_form"
_FIELD: Final = "field"

HOME_RESET: Final = "home_reset"
HOME_STOP: Final = "home_stop"
HOME_MODEL: Final = "home_model"
HOME_REFRESH: Final = "home_refresh"

_MAX_CHARACTERS: Final = 3_000
_MAX_SESSIONS: Final = 12
_MAX_MODELS: Final = 100
_MAX_OPTIONS: Final = 100
_DEFAULT_MODEL: Final = "(default)"

View = dict[str, Any]


def make_run_form(metadata: Mapping[str, str]) -> View:
    """Make the editor of `/py`."""
    return _form(RUN_FORM, command_words.RUN_TITLE, command_words.YOUR_CODE, "Run", metadata)


def make_ask_form(metadata: Mapping[str, str]) -> View:
    """Make the form for a question about a message."""
    return _form(ASK_FORM, command_words.ASK_TITLE, command_words.YOUR_QUESTION, "Ask", metadata)


def make_edit_form(metadata: Mapping[str, str], question: events.ApprovalQuestion) -> View:
    """Make the editor of what waits for approval."""
    title, label, button = question_words.edit_form(question.subject)
    initial = question.code[:_MAX_CHARACTERS]
    return _form(EDIT_FORM, title, label, button, metadata, initial=initial)


def make_answer_form(metadata: Mapping[str, str], prompt: str, *, is_of_model: bool) -> View:
    """Make the form for an answer to `input()`, or to the model."""
    title = question_words.ANSWER_LABEL if is_of_model else question_words.INPUT_TITLE
    label = prompt or question_words.ANSWER_LABEL
    return _form(ANSWER_FORM, title, label, "Answer", metadata, is_optional=True)


def make_command_form(metadata: Mapping[str, Any], form: command_types.Form) -> View:
    """Make the form of a command."""
    return _view(COMMAND_FORM, form.title, "Save", metadata, *map(_input, form.fields))


def _input(field: command_types.FormField) -> slack_blocks.InputBlock:
    element: block_elements.InputInteractiveElement
    if field.choices:
        options = [
            basic_components.Option(text=blocks.plain(choice), value=choice)
            for choice in field.choices[:_MAX_OPTIONS]
        ]
        initial = next((option for option in options if option.value == field.value), None)
        element = block_elements.StaticSelectElement(
            action_id=field.name, options=options, initial_option=initial
        )
    else:
        element = block_elements.PlainTextInputElement(
            action_id=field.name,
            multiline=True,
            max_length=field.max_characters,
            initial_value=field.value or None,
        )
    label = blocks.plain(field.label)
    return slack_blocks.InputBlock(block_id=field.name, label=label, element=element, optional=True)


def entered_values(view: View) -> dict[str, str]:
    """Return what was entered into the form of a command, by field."""
    state = view.get("state", {}).get("values", {})
    elements = {name: element for field in state.values() for name, element in field.items()}
    return {
        name: str(element.get("value") or (element.get("selected_option") or {}).get("value") or "")
        for name, element in elements.items()
    }


def _form(
    callback_id: str,
    title: str,
    label: str,
    submit: str,
    metadata: Mapping[str, str],
    *,
    initial: str | None = None,
    is_optional: bool = False,
) -> View:
    """Make a form with one large field."""
    field = block_elements.PlainTextInputElement(
        action_id=_FIELD,
        multiline=True,
        max_length=_MAX_CHARACTERS,
        focus_on_load=True,
        initial_value=initial,
    )
    block = slack_blocks.InputBlock(
        block_id=_FIELD, label=blocks.plain(label, 200), element=field, optional=is_optional
    )
    return _view(callback_id, title, submit, metadata, block)


def _view(
    callback_id: str,
    title: str,
    submit: str,
    metadata: Mapping[str, Any],
    *inputs: slack_blocks.InputBlock,
) -> View:
    view = views.View(
        type="modal",
        callback_id=callback_id,
        private_metadata=json.dumps(metadata),
        title=title,
        submit=submit,
        close="Cancel",
        blocks=inputs,
    )
    return view.to_dict()


def submitted_text(view: View) -> str:
    """Return the text of the only field of a submitted form."""
    state = view.get("state", {}).get("values", {})
    return str(state.get(_FIELD, {}).get(_FIELD, {}).get("value") or "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Data of the home tab.

    Attributes:
        sessions: the person's own.
        help: as Markdown.
        admin_blocks: shown below; empty if the person is no admin.
    """

    sessions: Sequence[past_turns.SessionOverview]
    models: Sequence[str]
    help: str
    usage: past_turns.UsageSummary
    notice: str = ""
    admin_blocks: Sequence[blocks.Block] = ()


def make_home_view(content: Home) -> View:
    """Make the home tab."""
    home_blocks: list[blocks.Block] = [heading(slack_words.YOUR_SESSIONS)]
    if content.notice:
        home_blocks.append(blocks.note(content.notice))
    if not content.sessions:
        home_blocks.append(blocks.section(slack_words.NO_SESSIONS))
    for overview in content.sessions[:_MAX_SESSIONS]:
        home_blocks += _session(overview, content.models)
    home_blocks += [
        heading(slack_words.YOUR_USE),
        blocks.section(session_facts.describe_today(content.usage)),
    ]
    home_blocks += content.admin_blocks
    home_blocks.append(blocks.actions(blocks.button("Refresh", HOME_REFRESH, "home")))
    home_blocks.append(blocks.section(markdown.escape_mrkdwn(content.help.replace("**", "*"))))
    return views.View(type="home", blocks=home_blocks[:100]).to_dict()


def heading(text: str) -> blocks.Block:
    """Make a heading."""
    return {"type": "header", "text": blocks.plain(text, 150)}


def session_value(overview: past_turns.SessionOverview) -> str:
    """Encode a session as the value of a button."""
    return blocks.button_value(overview.record.key, "")


def session_text(overview: past_turns.SessionOverview) -> str:
    """Describe a session as mrkdwn."""
    title = markdown.escape_mrkdwn(markdown.plain_line(overview.record.title, 100)) or "Untitled"
    channel = overview.record.key.channel
    channel_text = slack_words.DIRECT_MESSAGE if channel.startswith("D") else f"<#{channel}>"
    state = "running" if overview.is_busy else "idle" if overview.has_kernel else "stopped"
    memory = ""
    if overview.memory_bytes is not None:
        memory = f", {quantities.size(overview.memory_bytes)} of memory"
    # Slack shows this in the reader's time zone.
    used_at = overview.record.used
    fallback = f"{used_at:%Y-%m-%d %H:%M} UTC"
    used_text = f"<!date^{int(used_at.timestamp())}^{{date_short_pretty}} at {{time}}|{fallback}>"
    return f"*{title}*\n{channel_text}, {state}{memory}, last used {used_text}"


def _session(overview: past_turns.SessionOverview, models: Sequence[str]) -> list[blocks.Block]:
    button_value = session_value(overview)
    row_elements: list[blocks.Block] = []
    if overview.is_busy:
        row_elements.append(blocks.button("Stop", HOME_STOP, button_value, style="danger"))
    row_elements.append(blocks.button("Reset", HOME_RESET, button_value))
    if models:
        row_elements.append(_model_menu(overview, models, button_value))
    return [blocks.section(session_text(overview)), blocks.actions(*row_elements)]


def _model_menu(
    overview: past_turns.SessionOverview, models: Sequence[str], button_value: str
) -> blocks.Block:
    # The value of an option is limited to 150 characters, so it has the model's index.
    titles = [_DEFAULT_MODEL, *models][:_MAX_MODELS]
    options = [
        basic_components.Option(text=blocks.plain(title), value=f"{index} {button_value}"[:150])
        for index, title in enumerate(titles)
    ]
    current = titles.index(overview.record.model) if overview.record.model in titles else 0
    return block_elements.StaticSelectElement(
        action_id=HOME_MODEL, options=options, initial_option=options[current]
    ).to_dict()


def parse_model_choice(value: str, models: Sequence[str]) -> tuple[str, str | None]:
    """Parse the value of a session, and the model chosen for it; None is the default."""
    index_text, _, button_value = value.partition(" ")
    index = int(index_text) - 1 if index_text.isdigit() else -1
    return button_value, models[index] if 0 <= index < len(models) else None
