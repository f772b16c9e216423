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
from interpreter_bot.sessions import requests, share_links
from interpreter_bot.wording import session_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service

_WITH_MODEL: Final = (
    "Mention me with a question, or send me a file in a direct message; I write Python, run it and "
    "show the result. Variables stay alive within a thread."
)
_WITHOUT_MODEL: Final = (
    "I run your Python and show the result. Variables stay alive within a thread."
)
_HELP: Final = (
    (
        "",
        "`/py CODE` runs your own code in the channel's Python, without the model; `/py` alone "
        "opens an editor. In a thread: mention me with `py CODE`.",
    ),
    (
        "",
        "`reset` clears variables and history (`reset files` deletes the files too) · `stop` stops "
        "the code",
    ),
    (
        "",
        "`files` lists the files, `files NAME` sends one · `notebook` sends the conversation as a "
        "notebook",
    ),
    ("page", "`page` sends you, and nobody else, a link to read this conversation on the page"),
    ("model", "`model` lists the models, `model NAME` switches models"),
    ("", "`usage` shows what you used, `limits` what your code may use"),
    ("network", "`network` shows what your code may reach outside"),
    ("tools", "`tools` lists the tools of other systems that your code may call"),
    (
        "connect",
        "`connect NAME` connects your account so tools can act as you; `disconnect NAME` removes "
        "it",
    ),
    (
        "",
        "`variables` lists variables and which are saved; `again` re-runs the cells whose "
        "variables could not be saved",
    ),
    (
        "",
        "`fork` opens a thread with a copy of this conversation: variables, files and history · "
        "`undo` goes back to before the last answer",
    ),
    (
        "model",
        "`approval never|plan|every` (admins): ask a person before the model's code runs",
    ),
    ("", "`follow on|off` (admins): answer without a mention in threads of one person"),
)
"""The lines of the help, each with the command that has to be offered for it, if any."""
_WAYS: Final = """\
Send me these in a thread, or after `/interpreter` for the channel's own Python. On a message, \
"Run this message" runs it, and "Ask about this message" asks me about it. Edit your message and \
I'll answer again. AI can be wrong: check what matters."""


_QUESTIONS: Final = {
    ("reset", ""): ("Reset? Variables are cleared; files are kept.", "Reset"),
    ("reset", "files"): ("Reset, and delete all files of this conversation?", "Reset and delete"),
    ("undo", ""): (
        "Undo the last answer? Variables, files and history go back to before it.",
        "Undo",
    ),
}
_NO_TURN: Final = 0
_STOPPING: Final = "Stopping."
Tell = Callable[[str], Awaitable[None]]


async def help_text(
    service: session_service.SessionService, key: values.SessionKey, person: requests.Person
) -> str:
    """Return help as Markdown, with the commands that do something in a session."""
    offered = await offered_commands.offered(service, key, person)
    lines = [f"- {line}" for command, line in _HELP if not command or command in offered]
    beginning = _WITH_MODEL if "model" in offered else _WITHOUT_MODEL
    return "\n\n".join([beginning, "\n".join(lines), _WAYS])


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
        await self._teller(place)(_STOPPING)

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
            raise errors.BotError("There is no such conversation here.")
        if place.user != person and not profile.is_admin:
            raise errors.BotError("Only the person who asked can do that.")
        name = f"{workspace.team}/{place.channel}/{ts}/confirmed"
        if not await self._service.events.claim("slack", name):
            raise errors.BotError("That was decided already.")

        async def tell(text: str) -> None:
            await message_posting.replace(self._services.api, place, ts, text)

        if is_confirmed:
            if command == ("undo", ""):
                # An earlier release asked, which did not note the answer.
                command = ("undo", str(_NO_TURN))
            await self.run(message_parsing.SlackCommand(*command), key, place, profile, tell=tell)
        else:
            await tell("_Cancelled. Nothing was changed._")

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
                kept = "deleted" if command.argument == "files" else "kept"
                return f"Reset. Variables cleared; files {kept}."
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
                return _STOPPING if await service.stop(key) else "Nothing is running here."
            case "files" if command.argument:
                return await self.send_file(key, place, command.argument)
            case "files":
                return markdown.files(await service.queries.files(key))
            case "limits":
                return markdown.listed(
                    session_facts.limits(service.queries.limits, service.queries.kernels)
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
                return f"Now using {command.argument}."
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
            return service.model_notice or "No model is set up; `/py` runs your own code."
        current = await service.queries.model(key)
        return f"Models:\n{markdown.listed(session_facts.models(service.queries.models, current))}"

    async def _approval(
        self, argument: str, key: values.SessionKey, profile: permissions.Profile
    ) -> str:
        if argument and argument not in get_args(requests.Approval):
            raise errors.BotError("Approval is one of: never, plan, every.")
        if argument:
            await self._choose(key, profile, permissions.APPROVAL, argument)
        scope = values.Scope("slack", key.workspace, key.channel)
        holds = await self._service.queries.approval(scope, self._config.approval)
        more = f" `{argument}` is weaker than the setting here, so the stricter one applies."
        return f"Approval here: {holds}.{more if argument not in ('', holds) else ''}"

    async def _following(
        self, argument: str, key: values.SessionKey, profile: permissions.Profile
    ) -> str:
        if argument and argument not in message_parsing.SWITCH:
            raise errors.BotError("Following threads is one of: on, off.")
        if argument:
            await self._choose(
                key, profile, permissions.FOLLOWING, message_parsing.SWITCH[argument]
            )
        scope = values.Scope("slack", key.workspace, key.channel)
        follows = (await self._services.permissions.preferences(scope)).follows_threads
        return f"Answering without a mention here: {'on' if follows else 'off'}."

    async def _choose(
        self, key: values.SessionKey, profile: permissions.Profile, name: str, value: object
    ) -> None:
        """Store a choice for a channel.

        Raises:
            BotError: that is not theirs to do.
        """
        if not profile.is_admin and not key.channel.startswith("D"):
            raise errors.BotError("Only admins may change that for a channel.")
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
        link = blocks.linked(await self._service.visits.link(key), share_links.LINK_TEXT)
        await message_posting.whisper(self._services.api, place, share_links.ABOUT, link)

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
