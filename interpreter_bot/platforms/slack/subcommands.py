"""Commands besides questions: by `/interpreter`, or by a mention."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, get_args

from interpreter_bot import cancellation, errors, values
from interpreter_bot.platforms.rendering import offered_commands, session_facts
from interpreter_bot.platforms.slack import (
    blocks,
    file_uploads,
    handler_dependencies,
    markdown,
    message_parsing,
    message_posting,
    permissions,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import (
    access_words,
    command_words,
    model_words,
    question_words,
    run_words,
    session_words,
)

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service


_QUESTIONS: Final = {
    ("reset", ""): (command_words.RESET_QUESTION, "Reset"),
    ("reset", "files"): (command_words.RESET_FILES_QUESTION, "Reset and delete"),
    ("undo", ""): (
        command_words.UNDO_QUESTION,
        "Undo",
    ),
}
_NO_TURN: Final = 0
Tell = Callable[[str], Awaitable[None]]


async def help_text(
    service: session_service.SessionService, key: values.SessionKey, person: requests.Person
) -> str:
    """Return help as Markdown, with the commands that do something in a session."""
    offered = await offered_commands.offered(service, key, person)
    lines = [
        f"- {line}"
        for command, line in command_words.SLACK_COMMANDS
        if not command or command in offered
    ]
    beginning = (
        command_words.SLACK_INTRODUCTION
        if "model" in offered
        else command_words.SLACK_INTRODUCTION_WITHOUT_MODEL
    )
    return "\n\n".join([beginning, "\n".join(lines), command_words.SLACK_WAYS])


class CommandEffects:
    """Runs commands."""

    def __init__(self, shared: handler_dependencies.HandlerDependencies) -> None:
        self._services = shared
        self._service = shared.service
        self._config = shared.config

    async def run(
        self,
        command: message_parsing.SlackCommand,
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
        person = requests.Person(profile.user, profile.name)
        tell = tell or self._teller(place)
        try:
            said = await self._answer(command, key, place, person, profile)
        except errors.BotError as error:
            said = markdown.defused(str(error))
        if said:
            await tell(said)

    async def names_something(
        self, command: message_parsing.SlackCommand, key: values.SessionKey, person: requests.Person
    ) -> bool:
        """Say whether the object that a command names exists; true if it names none."""
        queries, name = self._service.queries, command.argument
        if not name:
            return True
        match command.name:
            case "model":
                return name in queries.models
            case "files":
                return any(file.name == name for file in await queries.files(key))
            case "connect" | "disconnect":
                servers = await queries.tools(key, person)
                return any(
                    tool.server == name and tool.is_logged_in is not None for tool in servers
                )
            case _:
                return True

    async def say_stopping(self, place: message_posting.Place) -> None:
        """Say that what ran is being stopped."""
        await self._teller(place)(command_words.STOPPING)

    async def confirm(
        self,
        command: message_parsing.SlackCommand,
        key: values.SessionKey,
        place: message_posting.Place,
    ) -> None:
        """Ask whether a command that came as words is to be run.

        Raises:
            SlackError: Slack refuses it.
        """
        question, label = _QUESTIONS[command.name, command.argument]
        argument = command.argument
        if command.name == "undo":
            # The button undoes this answer, whatever is the last one when it is pressed.
            past = await self._service.queries.history(key, most=1)
            argument = str(past[-1].id if past else _NO_TURN)
        value = blocks.command_value(key, place.user, command.name, argument)
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
                command = ("undo", str(_NO_TURN))
            await self.run(message_parsing.SlackCommand(*command), key, place, profile, tell=tell)
        else:
            await tell(f"_{question_words.UNCHANGED}_")

    def _teller(self, place: message_posting.Place) -> Tell:
        async def tell(text: str) -> None:
            content = message_posting.content(text[:11_000])
            await message_posting.post(self._services.api, place, content, place.thread)

        return tell

    async def _answer(
        self,
        command: message_parsing.SlackCommand,
        key: values.SessionKey,
        place: message_posting.Place,
        person: requests.Person,
        profile: permissions.Profile,
    ) -> str:
        service = self._service
        match command.name:
            case "reset":
                await service.reset(key, files=command.argument == "files")
                return session_words.reset(files_deleted=command.argument == "files")
            case "fork":
                return await self._fork(key, place, person)
            case "undo":
                turn_id = int(command.argument) if command.argument else None
                taken_back = await service.branches.undo(key, turn_id=turn_id)
                sentence = session_words.undone(
                    taken_back.request, taken_back.missed_runs, taken_back.files_flaw
                )
                return markdown.defused(sentence)
            case "stop":
                return command_words.STOPPING if await service.stop(key) else run_words.NOTHING_RUNS
            case "files" if command.argument:
                return await self.send_file(key, place, command.argument)
            case "files":
                return markdown.files(await service.queries.files(key))
            case "limits":
                return markdown.listed(
                    session_facts.limits(
                        service.queries.limits,
                        service.queries.kernels,
                        service.queries.sandbox_level,
                    )
                )
            case "network":
                return markdown.listed(session_facts.network(service.queries.reach(key)))
            case "tools":
                offered = await service.queries.tools(key, person)
                return markdown.listed(session_facts.tools(offered))
            case "connect":
                return await self._connect(key, place, person, command.argument)
            case "disconnect":
                told = await service.logins.forget(key, person.id, command.argument)
                return markdown.defused(told)
            case "variables":
                held = await service.queries.variables(key)
                return markdown.listed(session_facts.variables(held))
            case "model" if command.argument:
                await service.choose_model(key, command.argument)
                return model_words.now_used(command.argument)
            case "model":
                return await self._models(key)
            case "notebook":
                return await self._send_notebook(key, place)
            case "page":
                await self.send_link(key, place)
                return ""
            case "usage":
                return markdown.listed(
                    session_facts.usage(await service.queries.usage(key, person))
                )
            case "approval":
                return await self._approval(command.argument, key, profile)
            case "follow":
                return await self._following(command.argument, key, profile)
            case _:
                said = await help_text(service, key, person)
                notice = service.model_notice
                return f"{said}\n\n_{markdown.defused(notice)}_" if notice else said

    async def _connect(
        self,
        key: values.SessionKey,
        place: message_posting.Place,
        person: requests.Person,
        server: str,
    ) -> str:
        """Send a link to log in, for that person's eyes, wherever the command was said."""
        link = await self._service.logins.link(key, person, server)
        await message_posting.whisper(self._services.api, place, link)
        return ""

    async def _fork(
        self, key: values.SessionKey, place: message_posting.Place, person: requests.Person
    ) -> str:
        """Copy a session into a new thread of the same channel, whose people see both."""
        content = {"text": session_words.COPY, "blocks": [blocks.note(session_words.COPY)]}
        root = await message_posting.post(self._services.api, place, content, "")
        try:
            copy = dataclasses.replace(key, thread=root)
            await self._service.branches.fork(key, copy, person.id)
        except BaseException:
            call = self._services.api.call(
                place.workspace, "chat.delete", channel=place.channel, ts=root
            )
            await cancellation.shielded(call)
            raise
        link = f"https://slack.com/archives/{place.channel}/p{root.replace('.', '')}"
        return f"{session_words.COPIED} [Open it]({link})"

    async def _models(self, key: values.SessionKey) -> str:
        service = self._service
        if not service.queries.models:
            return service.model_notice or model_words.NONE
        current = await service.queries.model(key)
        return f"Models:\n{markdown.listed(session_facts.models(service.queries.models, current))}"

    async def _approval(
        self, argument: str, key: values.SessionKey, profile: permissions.Profile
    ) -> str:
        if argument and argument not in get_args(requests.Approval):
            raise errors.BotError(command_words.APPROVAL_CHOICES)
        if argument:
            await self._choose(key, profile, permissions.APPROVAL, argument)
        scope = values.Scope("slack", key.workspace, key.channel)
        holds = await self._service.queries.approval(scope, self._config.approval)
        sentence = access_words.approval(holds)
        return sentence if argument in ("", holds) else f"{sentence} {access_words.WEAKER}"

    async def _following(
        self, argument: str, key: values.SessionKey, profile: permissions.Profile
    ) -> str:
        if argument and argument not in message_parsing.SWITCH:
            raise errors.BotError(command_words.FOLLOWING_CHOICES)
        if argument:
            await self._choose(
                key, profile, permissions.FOLLOWING, message_parsing.SWITCH[argument]
            )
        scope = values.Scope("slack", key.workspace, key.channel)
        follows = (await self._services.permissions.preferences(scope)).follows_threads
        return access_words.following(follows)

    async def _choose(
        self, key: values.SessionKey, profile: permissions.Profile, name: str, value: object
    ) -> None:
        """Store a choice for a channel.

        Raises:
            BotError: that is not theirs to do.
        """
        if not profile.is_admin and not key.channel.startswith("D"):
            raise errors.BotError(access_words.ADMINS_ONLY_IN_CHANNEL)
        scope = values.Scope("slack", key.workspace, key.channel)
        await self._service.choose(scope, name, value)

    async def _send_notebook(self, key: values.SessionKey, place: message_posting.Place) -> str:
        data = await self._service.queries.notebook(key)
        file = file_uploads.of_bytes("session.ipynb", data, "", is_image=False)
        return await self._send(place, file)

    async def send_link(self, key: values.SessionKey, place: message_posting.Place) -> None:
        """Give the person of a place a link to its session on the page, for them alone.

        Raises:
            BotError: there is none.
        """
        link = blocks.linked(await self._service.visits.link(key), session_words.PAGE_LINK)
        await message_posting.whisper(
            self._services.api, place, session_words.ABOUT_PAGE_LINK, link
        )

    async def send_file(
        self, key: values.SessionKey, place: message_posting.Place, name: str
    ) -> str:
        """Send a file of the workspace; return the sentence why it could not be sent, or empty.

        Raises:
            BotError: there is none of that name.
        """
        spool = file_uploads.UploadSpool()
        try:
            async with self._service.queries.reading(key, name) as (_, chunks):
                await _copy(chunks, spool)
            spool.complete()
        finally:
            spool.close()
        return await self._send(place, file_uploads.Outgoing(name, spool.file))

    async def _send(self, place: message_posting.Place, file: file_uploads.Outgoing) -> str:
        complaints = await self._services.uploads.send(place, place.thread, [file])
        return "\n".join(markdown.defused(complaint) for complaint in complaints)


async def _copy(chunks: AsyncIterator[bytes], spool: file_uploads.UploadSpool) -> None:
    async for chunk in chunks:
        spool.write(chunk)
