"""Interactions: slash commands, shortcuts and presses of buttons, everything but messages.

Above 300 lines: every command, shortcut and button ends in the same few steps.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from slack_bolt.async_app import AsyncRespond

from interpreter_bot import errors, values
from interpreter_bot.platforms.rendering import status_sentences
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    handler_dependencies,
    installations,
    live_messages,
    markdown,
    message_order,
    message_parsing,
    permissions,
    posted_messages,
    questions_to_people,
    requests_in_flight,
    subcommands,
)
from interpreter_bot.sessions import requests

_log = logging.getLogger(__name__)

RUN_SHORTCUT: Final = "run_message"
ASK_SHORTCUT: Final = "ask_message"
_NOTHING: Final = (
    f"Nothing is running any more that this would stop. {questions_to_people.ELSEWHERE}"
)
_NO_CODE: Final = "There is no code in this message: no code block and no Python snippet."


def teller(respond: AsyncRespond) -> subcommands.Tell:
    """Return a function that replies through bolt."""

    async def tell(text: str) -> None:
        shown = markdown.defused(text)[:11_000]
        await respond(
            text=shown[:300],
            blocks=[blocks.prose(shown)],
            replace_original=False,
            unfurl_links=False,
            unfurl_media=False,
        )

    return tell


class Interactions:
    """Runs what people press, choose and submit."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        in_flight: requests_in_flight.RequestsInFlight,
        handled: subcommands.CommandEffects,
    ) -> None:
        self._service = shared.service
        self._config = shared.config
        self._api = shared.api
        self._permissions = shared.permissions
        self._threads = shared.threads
        self._downloads = shared.downloads
        self._in_flight = in_flight
        self._commands = handled
        self._orders = message_order.MessageOrder()

    def spawn(self, work: Awaitable[None], name: str, tell: subcommands.Tell | None) -> None:
        """Run work in a task of its own, and tell the person of its errors."""

        async def with_errors_told() -> None:
            try:
                await work
            except api_errors.GoneError:
                raise
            except Exception as error:
                is_ours = isinstance(error, errors.BotError)
                _log.log(logging.INFO if is_ours else logging.ERROR, "refused", exc_info=error)
                if tell is not None:
                    await tell(status_sentences.error_sentence(error))

        self._in_flight.spawn(with_errors_told(), name)

    # Code and questions -------------------------------------------------------------------

    async def run_code(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        code: str,
    ) -> None:
        """Run code in the channel's kernel, and show that in the channel.

        Raises:
            BotError: it is not run.
        """
        place = posted_messages.Place(workspace, channel, thread="", asked="", user=user)
        key = values.SessionKey("slack", workspace.team, channel)
        async with self._orders.at((workspace.team, channel, "")):
            profile = await self._permissions.require(workspace, user, channel)
            start = await self._open_code(key, place, profile, code)
        await start()

    async def _open_code(
        self,
        key: values.SessionKey,
        place: posted_messages.Place,
        profile: permissions.Profile,
        code: str,
    ) -> Callable[[], Awaitable[None]]:
        """Show that code is going to run; return what runs it."""
        person = requests.Person(profile.user, profile.name)
        request = requests.Request(
            key=key, person=person, text=code, is_code=True, id=uuid.uuid4().hex
        )
        heading = live_messages.heading(profile.name, code)
        entry = await self._in_flight.open(key, place, request.id, heading=heading)
        return functools.partial(self._in_flight.answer, entry, request)

    async def run_message(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        facts: Mapping[str, Any],
    ) -> None:
        """Run the code of a message, in the thread it belongs to.

        Raises:
            BotError: there is none, or it is not run.
        """
        profile = await self._permissions.require(workspace, user, channel)
        code = await self._code_of(workspace, facts)
        place, key = await self._at(workspace, user, channel, facts)
        start = await self._open_code(key, place, profile, code)
        await start()

    async def _code_of(
        self, workspace: installations.InstalledWorkspace, facts: Mapping[str, Any]
    ) -> str:
        """Return the code of a message.

        Raises:
            BotError: there is none.
        """
        text = str(facts.get("text") or "")
        found = message_parsing.preformatted(tuple(facts.get("blocks") or ()))
        found = found or list(message_parsing.fenced(text))
        if found:
            return "\n".join(found)
        for file in facts.get("files") or ():
            if message_parsing.is_snippet(file) or str(file.get("name", "")).endswith(".py"):
                return await self._downloads.text(workspace, file)
        raise errors.BotError(_NO_CODE)

    async def _at(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        facts: Mapping[str, Any],
    ) -> tuple[posted_messages.Place, values.SessionKey]:
        ts = str(facts.get("ts", ""))
        root = str(facts.get("thread_ts") or ts)
        place = posted_messages.Place(workspace, channel, thread=root, asked=ts, user=user)
        thread = await self._threads.read(workspace, channel, root, ts)
        own = "" if thread.is_channels else root
        return place, values.SessionKey("slack", workspace.team, channel, own)

    async def ask_about(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        ts: str,
        question: str,
    ) -> None:
        """Ask the model about a message, in its thread.

        Raises:
            BotError: it is not asked.
        """
        profile = await self._permissions.require(workspace, user, channel)
        facts = await self._message(workspace, channel, ts)
        place, key = await self._at(workspace, user, channel, facts)
        author = ""
        if facts.get("user"):
            author = (await self._permissions.profile(workspace, str(facts["user"]))).name
        files = tuple(facts.get("files") or ())
        words = message_parsing.words(str(facts.get("text") or ""))
        request = requests.Request(
            key=key,
            person=requests.Person(profile.user, profile.name),
            text=question,
            attachments=self._downloads.attachments(workspace, files),
            context=f"{author or 'Somebody'}: {words}",
            id=uuid.uuid4().hex,
            approval=self._config.approval,
        )
        title = requests_in_flight.title_of(request)
        entry = await self._in_flight.open(key, place, request.id, title=title)
        await self._in_flight.answer(entry, request)

    async def _message(
        self, workspace: installations.InstalledWorkspace, channel: str, ts: str
    ) -> Mapping[str, Any]:
        """Fetch one message, which may stand in a thread.

        Raises:
            BotError: it is gone.
        """
        answer = await self._api.call(
            workspace,
            "conversations.replies",
            channel=channel,
            ts=ts,
            latest=ts,
            oldest=ts,
            inclusive=True,
            limit=2,
        )
        for facts in answer.get("messages", ()):
            if facts.get("ts") == ts:
                return dict(facts)
        raise errors.BotError("That message is gone.")

    # Commands and buttons -----------------------------------------------------------------

    async def command(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        text: str,
        tell: subcommands.Tell,
    ) -> None:
        """Run `/interpreter …` for the channel's own session."""
        place = posted_messages.Place(workspace, channel, thread="", asked="", user=user)
        try:
            profile = await self._permissions.require(workspace, user, channel)
        except permissions.NotAllowedError as error:
            await tell(str(error))
            return
        command = message_parsing.parse_command(
            message_parsing.words(text)
        ) or message_parsing.SlackCommand("help")
        if command.name == "py":
            await self.run_code(
                workspace, user, channel, message_parsing.code(text.strip()[2:].lstrip())
            )
            return
        key = values.SessionKey("slack", workspace.team, channel)
        if command.name == "again":
            cells = await self._service.branches.lost_cells(key)
            await self.run_code(workspace, user, channel, "\n\n".join(cells))
            return
        await self._commands.run(command, key, place, profile, tell=tell)

    async def stop(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        value: str,
    ) -> None:
        """Stop a request. Everybody who may use the bot there may.

        Raises:
            BotError: they may not.
        """
        await self._permissions.require(workspace, user, channel)
        key, request_id = requests_in_flight.request_of(value)
        if key is None or key.workspace != workspace.team or key.channel != channel:
            return
        if not await self._in_flight.cancel(key, request_id):
            raise errors.BotError(_NOTHING)

    async def stop_thread(
        self, workspace: installations.InstalledWorkspace, user: str, channel: str, root: str
    ) -> None:
        """Stop what runs in a thread, after a press of Slack's own stop button there."""
        place = posted_messages.Place(workspace, channel, thread=root, asked="", user=user)
        try:
            await self._permissions.require(workspace, user, channel)
        except permissions.NotAllowedError as error:
            await posted_messages.whisper(self._api, place, str(error))
            return
        key = values.SessionKey("slack", workspace.team, channel, root)
        if await self._in_flight.cancel_thread(key, root):
            return
        # The process that ran it died before it could show the end.
        await self._api.call(
            workspace,
            "agents.sessions.setStatus",
            channel_id=channel,
            thread_ts=root,
            status="active",
        )
        await posted_messages.whisper(self._api, place, _NOTHING)

    async def send_table(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        place: posted_messages.Place,
        value: str,
    ) -> None:
        """Send the whole of a table, of which an answer shows the head, into its thread.

        Raises:
            BotError: it cannot be had, or not by this person.
        """
        await self._permissions.require(workspace, user, place.channel)
        session, _, handle = value.rpartition("/")
        key = requests_in_flight.key_of(session)
        if key is None or (key.workspace, key.channel) != (workspace.team, place.channel):
            raise errors.BotError("There is no such table.")
        name = await self._service.save_table(key, handle)
        if complaints := await self._commands.send_file(key, place, name):
            raise errors.BotError(complaints)

    async def rename(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        root: str,
        title: str,
    ) -> None:
        """Take over the title that a person gave a session in Slack.

        Raises:
            NotAllowedError: they may not use the bot there.
        """
        if channel and root and title:
            await self._permissions.require(workspace, user, channel)
            key = values.SessionKey("slack", workspace.team, channel, root)
            await self._service.rename(key, title[:200])

    async def whisper(
        self, workspace: installations.InstalledWorkspace, user: str, channel: str, text: str
    ) -> None:
        """Send a person an ephemeral message in the channel where they are."""
        place = posted_messages.Place(workspace, channel, thread="", asked="", user=user)
        await posted_messages.whisper(self._api, place, text)
