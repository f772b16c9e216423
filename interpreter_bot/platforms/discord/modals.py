"""Modals for code and answers, and their submissions.

The id of a modal says what it is for, so every run of the bot can handle its submission.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import discord

from interpreter_bot import errors
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.chat import buttons
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    file_transfers,
    interactions,
    message_parsing,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import command_words, file_words

MAX_CHARACTERS: Final = 4000
"""The most characters that a modal takes."""
_MAX_FILES: Final = 10
_OPEN_SECONDS: Final = 30 * 60.0
CODE, QUESTION, ANSWER, CHANGE = "code", "question", "answer", "change"
"""What a modal is for; part of its id."""
_PURPOSES: Final = frozenset({CODE, QUESTION, ANSWER, CHANGE})
_MODAL_ID: Final = re.compile(r"ibw:(?P<purpose>[a-z]+):(?P<subject_id>[0-9]{1,20}):[0-9a-f]+")
_FORM_ID: Final = re.compile(r"ibf:(?P<name>[a-z]+):(?P<argument>[a-z0-9 ]{1,40}):[0-9a-f]+")
_MAX_OPTIONS: Final = 25
_MAX_OPTION_CHARACTERS: Final = 100

_log = logging.getLogger(__name__)

# Discord waits three seconds for the acknowledgement.
_FETCH_SECONDS: Final = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class SubmittedModal:
    """A submission of a modal.

    Attributes:
        modal_id: of the modal.
        purpose: one of `_PURPOSES`.
        subject_id: of the message or question that it is about; 0 for none.
    """

    modal_id: str
    purpose: str
    subject_id: int
    text: str
    files: tuple[file_transfers.AttachedFile, ...]


async def open_modal(
    handler: interactions.InteractionHandler,
    interaction: discord.Interaction[Any],
    title: str,
    label: str,
    *,
    purpose: str,
    subject_id: int = 0,
    placeholder: str = "",
    default: str = "",
    is_paragraph: bool = True,
    is_required: bool = True,
    context: interactions.ModalContext | None = None,
) -> None:
    """Open a modal with a text field, and with one for files if its context may have more."""
    # Several people may have such a modal open, so each needs an id of its own.
    custom_id = f"ibw:{purpose}:{subject_id}:{secrets.token_hex(8)}"
    modal = discord.ui.Modal(title=title[:45], timeout=_OPEN_SECONDS, custom_id=custom_id)
    text: discord.ui.TextInput[Any] = discord.ui.TextInput(
        custom_id="text",
        style=discord.TextStyle.paragraph if is_paragraph else discord.TextStyle.short,
        placeholder=placeholder or None,
        default=default or None,
        required=is_required,
        max_length=MAX_CHARACTERS,
    )
    modal.add_item(discord.ui.Label(text=label[:45], component=text))
    if context is not None:
        handler.modal_contexts[custom_id] = context
        files: discord.ui.FileUpload[Any] = discord.ui.FileUpload(
            custom_id="files", required=False, min_values=0, max_values=_MAX_FILES
        )
        modal.add_item(discord.ui.Label(text=file_words.UPLOAD_LABEL, component=files))
    await interaction.response.send_modal(modal)


def command_form(
    form: command_types.Form, invocation: command_types.Invocation
) -> discord.ui.Modal:
    """Return the form of a command; its id says all that `parse_form` needs of it."""
    name, argument = invocation.command.name, invocation.argument
    custom_id = f"ibf:{name}:{argument}:{secrets.token_hex(8)}"
    modal = discord.ui.Modal(title=form.title[:45], timeout=_OPEN_SECONDS, custom_id=custom_id)
    for field in form.fields:
        component: discord.ui.Item[Any]
        if field.choices:
            options = [
                discord.SelectOption(
                    label=choice[:_MAX_OPTION_CHARACTERS],
                    value=choice[:_MAX_OPTION_CHARACTERS],
                    default=choice == field.value,
                )
                for choice in field.choices[:_MAX_OPTIONS]
            ]
            component = discord.ui.Select(
                custom_id=field.name, options=options, required=False, min_values=0
            )
        else:
            component = discord.ui.TextInput(
                custom_id=field.name,
                style=discord.TextStyle.paragraph,
                default=field.value or None,
                required=False,
                max_length=field.max_characters,
            )
        modal.add_item(discord.ui.Label(text=field.label[:45], component=component))
    return modal


def parse_form(
    interaction: discord.Interaction[Any],
) -> tuple[command_types.Invocation, dict[str, str]] | None:
    """Return the command of a submitted form, and what was entered by field; None if it is none."""
    data = cast("Mapping[str, Any]", interaction.data or {})
    match = _FORM_ID.fullmatch(str(data.get("custom_id", "")))
    command = match and command_table.commands_of(channels_and_threads.PLATFORM).get(match["name"])
    if not match or not command:
        return None
    entered_values: dict[str, str] = {}
    for field in _fields(data):
        # A selection in which nothing is chosen changes nothing.
        for text in [field["value"]] if "value" in field else field.get("values", ()):
            entered_values[str(field.get("custom_id"))] = str(text)
    return command_types.Invocation(command, match["argument"]), entered_values


def _parse_submission(interaction: discord.Interaction[Any]) -> SubmittedModal:
    """Parse the submission of a modal.

    Raises:
        BotError: the modal is unknown.
    """
    data = cast("Mapping[str, Any]", interaction.data or {})
    match = _MODAL_ID.fullmatch(str(data.get("custom_id", "")))
    if match is None or match["purpose"] not in _PURPOSES:
        raise errors.BotError(command_words.OUTDATED_FORM)
    attachments_by_id = (data.get("resolved") or {}).get("attachments") or {}
    text, files = "", []
    for field in _fields(data):
        if field.get("custom_id") == "text":
            text = str(field.get("value", ""))
        elif field.get("custom_id") == "files":
            files += [
                attachments_by_id[attachment_id]
                for attachment_id in field.get("values", ())
                if attachment_id in attachments_by_id
            ]
    attachments = tuple(
        file_transfers.AttachedFile(file["filename"], file["size"], file["url"]) for file in files
    )
    return SubmittedModal(match[0], match["purpose"], int(match["subject_id"]), text, attachments)


def _fields(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for row in data.get("components") or ():
        if isinstance(field := row.get("component"), Mapping):
            yield field


async def handle_submission(
    handler: interactions.InteractionHandler, interaction: discord.Interaction[Any]
) -> None:
    """Handle the submission of a modal."""
    try:
        await _handle_submission(handler, interaction)
    except Exception as error:
        # The library would only log it, and leave the person without an answer.
        await handler.report_error(interaction, error)


async def _handle_submission(
    handler: interactions.InteractionHandler, interaction: discord.Interaction[Any]
) -> None:
    submission = _parse_submission(interaction)
    context = handler.modal_contexts.get(submission.modal_id)
    if submission.purpose == CODE:
        await handler.run_request(
            interaction,
            code_reading.read_as_code(submission.text),
            attachments=(*(context.attachments if context else ()), *submission.files),
            is_code=True,
        )
    elif submission.purpose == QUESTION:
        if context is None:
            context = await _fetch_context(interaction, submission.subject_id)
        await handler.run_request(
            interaction,
            submission.text,
            attachments=(*context.attachments, *submission.files),
            recent=context.recent,
        )
    else:
        question_id, answer = str(submission.subject_id), submission.text
        if submission.purpose == CHANGE:
            answer = buttons.read_edited(handler.service.questions.find(question_id), answer)
        await respond(handler, interaction, question_id, submission.purpose, answer)


def is_admin(interaction: discord.Interaction[Any]) -> bool:
    """Return whether a person is an administrator of the server, and the bot is a member of it."""
    is_on_server = interaction.guild_id is not None and channels_and_threads.is_bot_at(interaction)
    return is_on_server and interaction.permissions.administrator


async def respond(
    handler: interactions.InteractionHandler,
    interaction: discord.Interaction[Any],
    question_id: str,
    action: str,
    text: str = "",
) -> None:
    """Answer a question if this person may; see `Questions.respond`."""
    if not await handler.acknowledge_and_claim(interaction, is_silent=True):
        return
    person, is_administrator = str(interaction.user.id), is_admin(interaction)
    try:
        await handler.service.questions.respond(
            question_id, action, text, person=person, is_admin=is_administrator
        )
    except errors.BotError as error:
        await handler.reply(interaction, str(error))


def make_message_context(
    interaction: discord.Interaction[Any], message: discord.Message
) -> interactions.ModalContext:
    """Return the context of a question about a message."""
    user = interaction.client.user
    bot_id = user.id if user is not None else 0
    quoted_message = message_parsing.recent_message(message, bot_id, is_referred=True)
    return interactions.ModalContext(tuple(message.attachments), (quoted_message,))


async def _fetch_context(
    interaction: discord.Interaction[Any], message_id: int
) -> interactions.ModalContext:
    """Return the context of a modal that an earlier run opened; empty if it cannot be read."""
    channel = interaction.channel
    if isinstance(channel, discord.abc.Messageable):
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                message = await channel.fetch_message(message_id)
                return make_message_context(interaction, message)
        except api_errors.ANY as error:
            _log.info("the message of a question could not be read", exc_info=error)
    return interactions.ModalContext()
