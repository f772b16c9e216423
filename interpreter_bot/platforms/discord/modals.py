"""Modals for code and answers, and submissions of modals that an earlier run of the bot opened.

The id of a modal says what it is for, so every run can handle its submission.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

import discord

from interpreter_bot import errors
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    file_transfers,
    interactions,
    message_parsing,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import command_words, file_words

OnSubmission: TypeAlias = Callable[
    [discord.Interaction[Any], str, tuple[discord.Attachment, ...]], Awaitable[None]
]
"""Called with a submission: its text and files."""
OnFailure: TypeAlias = Callable[[discord.Interaction[Any], Exception], Awaitable[None]]

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
_HANDLED: Final = "handled"
"""Key of `Interaction.extras`: a modal that is open in this process handles the submission."""

_log = logging.getLogger(__name__)

# Discord waits three seconds for the acknowledgement.
_FETCH_SECONDS: Final = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class SubmittedModal:
    """A submission of a modal that this process did not open.

    Attributes:
        purpose: one of `_PURPOSES`.
        subject_id: of the message or question that it is about; 0 for none.
    """

    purpose: str
    subject_id: int
    text: str
    files: tuple[file_transfers.AttachedFile, ...]


class CodeModal(discord.ui.Modal):
    """A modal with a text field and optionally files."""

    def __init__(
        self,
        title: str,
        label: str,
        on_submission: OnSubmission,
        on_failure: OnFailure,
        *,
        purpose: str,
        subject_id: int = 0,
        placeholder: str = "",
        default: str = "",
        is_paragraph: bool = True,
        is_required: bool = True,
        takes_files: bool = False,
    ) -> None:
        # Several people may have such a modal open, so each needs an id of its own.
        custom_id = f"ibw:{purpose}:{subject_id}:{secrets.token_hex(8)}"
        super().__init__(title=title[:45], timeout=_OPEN_SECONDS, custom_id=custom_id)
        self._on_submission = on_submission
        self._on_failure = on_failure
        style = discord.TextStyle.paragraph if is_paragraph else discord.TextStyle.short
        self._text: discord.ui.TextInput[Any] = discord.ui.TextInput(
            custom_id="text",
            style=style,
            placeholder=placeholder or None,
            default=default or None,
            required=is_required,
            max_length=MAX_CHARACTERS,
        )
        self.add_item(discord.ui.Label(text=label[:45], component=self._text))
        self._files: discord.ui.FileUpload[Any] | None = None
        if takes_files:
            self._files = discord.ui.FileUpload(
                custom_id="files", required=False, min_values=0, max_values=_MAX_FILES
            )
            self.add_item(discord.ui.Label(text=file_words.UPLOAD_LABEL, component=self._files))

    async def on_submit(self, interaction: discord.Interaction[Any], /) -> None:
        """Pass on the submission."""
        # Before any await, as other handlers of the event check this.
        interaction.extras[_HANDLED] = True
        files = tuple(self._files.values) if self._files is not None else ()
        await self._on_submission(interaction, self._text.value, files)

    async def on_error(  # type: ignore[override]
        self, interaction: discord.Interaction[Any], error: Exception, /
    ) -> None:
        """Report an error to the person."""
        await self._on_failure(interaction, error)


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


def parse_submission(interaction: discord.Interaction[Any]) -> SubmittedModal | None:
    """Parse the submission of an earlier run's modal; None if the modal is open in this process.

    Raises:
        BotError: the modal is unknown.
    """
    data = cast("Mapping[str, Any]", interaction.data or {})
    match = _MODAL_ID.fullmatch(str(data.get("custom_id", "")))
    if match is None or match["purpose"] not in _PURPOSES:
        raise errors.BotError(command_words.OUTDATED_FORM)
    if _HANDLED in interaction.extras:
        return None
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
    return SubmittedModal(match["purpose"], int(match["subject_id"]), text, attachments)


def _fields(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for row in data.get("components") or ():
        if isinstance(field := row.get("component"), Mapping):
            yield field


async def handle_submission(
    handler: interactions.InteractionHandler, interaction: discord.Interaction[Any]
) -> None:
    """Handle the submission of an earlier run's modal."""
    try:
        await _handle_submission(handler, interaction)
    except Exception as error:
        # The library would only log it, and leave the person without an answer.
        await handler.report_error(interaction, error)


async def _handle_submission(
    handler: interactions.InteractionHandler, interaction: discord.Interaction[Any]
) -> None:
    submission = parse_submission(interaction)
    if submission is None:
        return
    if submission.purpose == CODE:
        code = code_reading.read_as_code(submission.text)
        await handler.run_request(interaction, code, attachments=submission.files, is_code=True)
    elif submission.purpose == QUESTION:
        message = await _fetch_message(interaction, submission.subject_id)
        user = interaction.client.user
        bot_id = user.id if user is not None else 0
        await handler.run_request(
            interaction,
            submission.text,
            attachments=(*(message.attachments if message is not None else ()), *submission.files),
            recent=(message_parsing.recent_message(message, bot_id, is_referred=True),)
            if message
            else (),
        )
    else:
        answer = (
            code_reading.undo_typography(submission.text)
            if submission.purpose == CHANGE
            else submission.text
        )
        question_id = str(submission.subject_id)
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


async def _fetch_message(
    interaction: discord.Interaction[Any], message_id: int
) -> discord.Message | None:
    """Return a message of the channel, if the bot can read it."""
    channel = interaction.channel
    if not isinstance(channel, discord.abc.Messageable):
        return None
    try:
        async with asyncio.timeout(_FETCH_SECONDS):
            return await channel.fetch_message(message_id)
    except api_errors.ANY as error:
        _log.info("the message of a question could not be read", exc_info=error)
        return None
