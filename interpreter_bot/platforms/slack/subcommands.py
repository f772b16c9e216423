"""Commands besides questions: by `/interpreter`, or by a mention; their results, as Slack shows
them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from interpreter_bot import cancellation, errors, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.slack import (
    blocks,
    file_uploads,
    handler_dependencies,
    markdown,
    message_posting,
    permissions,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import access_words, command_words, question_words, session_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service

_MAX_CHARACTERS: Final = 11_000

Tell = Callable[[str], Awaitable[None]]


async def help_text(
    service: session_service.SessionService, key: values.SessionKey, person: requests.Person
) -> str:
    """Return help as Markdown, with the commands that do something in a session."""
    place = command_table.Place(service, key, person, values.Scope("slack"))
    result = await command_table.run(invocation("help"), place)
    return _help(result.commands) if isinstance(result, command_table.Help) else ""


def _help(commands: Sequence[command_table.Command]) -> str:
    has_models = any(command.name == "model" for command in commands)
    introduction = (
        command_words.SLACK_INTRODUCTION
        if has_models
        else command_words.SLACK_INTRODUCTION_WITHOUT_MODEL
    )
    lines = [f"- `{command.usage('slack')}`: {command.help}" for command in commands]
    return "\n\n".join([introduction, "\n".join(lines), command_words.SLACK_WAYS])


def invocation(name: str, argument: str = "") -> command_table.Invocation:
    """Return a command of the table."""
    return command_table.Invocation(command_table.offered("slack")[name], argument)


class CommandEffects:
    """Runs commands, and shows their results."""

    def __init__(self, shared: handler_dependencies.HandlerDependencies) -> None:
        self._services = shared
        self._service = shared.service

    def place_of_command(
        self, key: values.SessionKey, place: message_posting.Place, profile: permissions.Profile
    ) -> command_table.Place:
        """Return the place of a command."""
        refusals = {
            "channel": access_words.ADMINS_ONLY_IN_CHANNEL,
            "server": access_words.ADMINS_ONLY,
        }
        if profile.is_admin:
            refusals = {}
        if place.is_direct:
            refusals["channel"] = access_words.ONLY_FOR_YOURSELF
        return command_table.Place(
            self._service,
            key,
            requests.Person(profile.user, profile.name),
            values.Scope("slack", key.workspace, key.channel, profile.user),
            self._services.permissions.settings,
            refusals,
            open_copy=functools.partial(self._thread_for_copy, place),
        )

    async def run(
        self,
        command: command_table.Invocation,
        key: values.SessionKey,
        place: message_posting.Place,
        profile: permissions.Profile,
        *,
        tell: Tell | None = None,
    ) -> None:
        """Run a command and show its result.

        Args:
            tell: shows it; by default a message in the place itself.
        """
        tell = tell or self._teller(place)
        try:
            there = self.place_of_command(key, place, profile)
            text = await self.show(await command_table.run(command, there), key, place)
        except errors.BotError as error:
            text = markdown.defused(str(error))
        if text:
            await tell(text)

    async def show(
        self, result: command_table.Result, key: values.SessionKey, place: message_posting.Place
    ) -> str:
        """Send a file, or what is for one person; return the words of any other result."""
        match result:
            case command_table.Said(text, link):
                return f"{markdown.defused(text)} {link}".rstrip()
            case command_table.Listed():
                return markdown.listed(result)
            case command_table.Private(text, url, label):
                below = [blocks.linked(url, label)] if url else []
                await message_posting.whisper(self._services.api, place, text, *below)
                return ""
            case command_table.Help(commands):
                notice = self._service.model_notice
                return _help(commands) + (f"\n\n_{markdown.defused(notice)}_" if notice else "")
            case command_table.FileSent():
                return await self._send_file(result, key, place)
            case command_table.Run():
                raise errors.BotError(command_words.not_offered("py"))

    async def say_stopping(self, place: message_posting.Place) -> None:
        """Say that what ran is being stopped."""
        await self._teller(place)(command_words.STOPPING)

    async def confirm(
        self,
        command: command_table.Invocation,
        there: command_table.Place,
        place: message_posting.Place,
    ) -> None:
        """Ask whether a command that came as words is to be run.

        Raises:
            SlackError: Slack refuses it.
        """
        question, label = command.command.questions[command.argument]
        command = await command_table.pinned(command, there)
        value = blocks.command_value(there.key, place.user, command.command.name, command.argument)
        row = blocks.actions(
            blocks.button(label, blocks.CONFIRM, value, style="danger"),
            blocks.button("Cancel", blocks.DISMISS, value),
        )
        content = message_posting.content(question, [row])
        await message_posting.post(self._services.api, place, content, place.thread)

    async def confirmed(
        self, place: message_posting.Place, ts: str, value: str, *, is_confirmed: bool
    ) -> None:
        """Run a command that was asked for in words, or do not, and close its question.

        Raises:
            BotError: it is not for this person, or cannot be run.
        """
        workspace = place.workspace
        profile = await self._services.permissions.require(workspace, place.user, place.channel)
        key, person, command = blocks.command_of(value)
        if (key.workspace, key.channel) != (workspace.team, place.channel):
            raise errors.BotError(command_words.NO_CONVERSATION)
        if place.user != person and not profile.is_admin:
            raise errors.BotError(question_words.NOT_YOURS)
        name = f"{workspace.team}/{place.channel}/{ts}/confirmed"
        if not await self._service.events.claim("slack", name):
            raise errors.BotError(question_words.DECIDED)

        async def tell(text: str) -> None:
            await message_posting.replace(self._services.api, place, ts, text)

        if is_confirmed:
            if command == ("undo", ""):
                # An earlier release asked, which did not note the answer.
                command = ("undo", str(command_table.NO_TURN))
            await self.run(invocation(*command), key, place, profile, tell=tell)
        else:
            await tell(f"_{question_words.UNCHANGED}_")

    def _teller(self, place: message_posting.Place) -> Tell:
        async def tell(text: str) -> None:
            content = message_posting.content(text[:_MAX_CHARACTERS])
            await message_posting.post(self._services.api, place, content, place.thread)

        return tell

    @contextlib.asynccontextmanager
    async def _thread_for_copy(
        self, place: message_posting.Place
    ) -> AsyncIterator[tuple[str, str]]:
        """Begin a thread for a copy in the same channel, whose people see both conversations."""
        content = {"text": session_words.COPY, "blocks": [blocks.note(session_words.COPY)]}
        root = await message_posting.post(self._services.api, place, content, "")
        try:
            link = f"https://slack.com/archives/{place.channel}/p{root.replace('.', '')}"
            yield root, f"[Open it]({link})"
        except BaseException:
            call = self._services.api.call(
                place.workspace, "chat.delete", channel=place.channel, ts=root
            )
            await cancellation.shielded(call)
            raise

    async def _send_file(
        self, file: command_table.FileSent, key: values.SessionKey, place: message_posting.Place
    ) -> str:
        """Send a file; return the sentence why it could not be sent, or empty.

        Raises:
            BotError: there is none of that name.
        """
        if file.data is not None:
            outgoing = file_uploads.of_bytes(file.name, file.data, "", is_image=False)
        else:
            spool = file_uploads.UploadSpool()
            try:
                async with self._service.queries.reading(key, file.name) as (_, chunks):
                    async for chunk in chunks:
                        spool.write(chunk)
                spool.complete()
            finally:
                spool.close()
            outgoing = file_uploads.Outgoing(file.name, spool.file)
        complaints = await self._services.uploads.send(place, place.thread, [outgoing])
        return "\n".join(markdown.defused(complaint) for complaint in complaints)
