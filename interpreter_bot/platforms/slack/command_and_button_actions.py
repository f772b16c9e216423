"""Actions of slash commands and buttons, but for those that become requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from slack_bolt.async_app import AsyncRespond

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.rendering import past_code, query_listings
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    file_uploads,
    handler_dependencies,
    installations,
    interaction_requests,
    markdown,
    message_parsing,
    message_posting,
    permissions,
    requests_in_flight,
    subcommands,
)
from interpreter_bot.sessions import past_turns, requests
from interpreter_bot.text import fences
from interpreter_bot.wording import command_words, file_words, run_words

_log = logging.getLogger(__name__)


def teller(respond: AsyncRespond) -> subcommands.Tell:
    """Return a function that replies through bolt."""

    async def tell(text: str) -> None:
        content = message_posting.content(text[:11_000])
        for shown in (content["blocks"], None):
            response = await respond(
                text=content["text"] if shown else markdown.escaped(text[:3_500]),
                blocks=shown,
                replace_original=False,
                unfurl_links=False,
                unfurl_media=False,
            )
            if response.status_code == 200:
                return
            _log.warning("Slack refused a response: %s", response.body)

    return tell


class CommandActions:
    """Runs what people press, choose and submit."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        in_flight: requests_in_flight.RequestsInFlight,
        asked: interaction_requests.InteractionRequests,
        handled: subcommands.CommandEffects,
    ) -> None:
        self._service = shared.service
        self._api = shared.api
        self._uploads = shared.uploads
        self._permissions = shared.permissions
        self._in_flight = in_flight
        self._requests = asked
        self._commands = handled

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
                    await tell(run_words.error_sentence(error))

        self._in_flight.spawn(with_errors_told(), name)

    async def closing_unfinished(self, place: message_posting.Place, work: Awaitable[None]) -> None:
        """Do the work of a button; one that came to nothing may be that of a bot that is gone.

        Raises:
            BotError: of the work.
        """
        try:
            await work
        except errors.BotError:
            team, channel = place.workspace.team, place.channel
            key = values.SessionKey("slack", team, channel, place.thread)
            await self._in_flight.close_unfinished(key)
            raise

    async def command(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        text: str,
        tell: subcommands.Tell,
    ) -> None:
        """Run `/interpreter …` for the channel's own session."""
        place = message_posting.Place(workspace, channel, thread="", asked="", user=user)
        try:
            profile = await self._permissions.require(workspace, user, channel)
        except permissions.NotAllowedError as error:
            await tell(str(error))
            return
        command = command_table.parse_words(message_parsing.words(text), "slack")
        command = command or subcommands.invocation("help")
        key = values.SessionKey("slack", workspace.team, channel)
        if command.command.name == "py":
            code = message_parsing.code(text.strip()[2:].lstrip())
            await self._requests.run_code(workspace, user, channel, code)
            return
        if command.command.is_request:
            there = self._commands.place_of_command(key, place, profile)
            code = await command_table.code_of(command, there)
            await self._requests.run_code(workspace, user, channel, code)
            return
        async with self._requests.awaited(workspace, channel):
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
            raise errors.BotError(run_words.NOTHING_RUNS)

    async def stop_thread(
        self, workspace: installations.InstalledWorkspace, user: str, channel: str, root: str
    ) -> None:
        """Stop what runs in a thread, after a press of Slack's own stop button there."""
        place = message_posting.Place(workspace, channel, thread=root, asked="", user=user)
        try:
            await self._permissions.require(workspace, user, channel)
        except permissions.NotAllowedError as error:
            await message_posting.whisper(self._api, place, str(error))
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
        await self._in_flight.close_unfinished(key)
        await message_posting.whisper(self._api, place, run_words.NOTHING_RUNS)

    async def send_table(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        place: message_posting.Place,
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
            raise errors.BotError(command_words.NO_TABLE)
        name = await self._service.save_table(key, handle, requests.Person(user))
        file = command_table.FileSent(name)
        if complaints := await self._commands.show(file, key, place):
            raise errors.BotError(complaints)

    async def send_link(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        place: message_posting.Place,
        value: str,
    ) -> None:
        """Give a person a link to the session of an answer that stands where they are.

        Raises:
            BotError: there is none, or not for this person.
        """
        profile = await self._permissions.require(workspace, user, place.channel)
        key = requests_in_flight.key_of(value)
        if key is None or (key.workspace, key.channel) != (workspace.team, place.channel):
            raise errors.BotError(command_words.NO_CONVERSATION)
        there = self._commands.place_of_command(key, place, profile)
        result = await command_table.run(subcommands.invocation("page"), there)
        await self._commands.show(result, key, place)

    async def queries(
        self, workspace: installations.InstalledWorkspace, user: str, channel: str, value: str
    ) -> str:
        """Return what code of an answer asked of data connections, as Markdown.

        Raises:
            BotError: it is not known, or not to this person.
        """
        turn = await self._turn(workspace, user, channel, value)
        if not turn.queries:
            raise errors.BotError(command_words.ANSWER_TOO_OLD)
        return fences.fenced(query_listings.script(turn.queries), language="sql")

    async def show_code(self, place: message_posting.Place, value: str) -> None:
        """Show a person alone what an answer ran, the code as it is; as files if messages cannot.

        Raises:
            BotError: it is not known, or not to this person.
        """
        turn = await self._turn(place.workspace, place.user, place.channel, value)
        runs = past_code.runs(turn)
        if (messages := blocks.code_messages(runs)) is not None:
            for message in messages:
                await message_posting.whisper(self._api, place, past_code.ABOUT, *message)
            return
        files = [
            file_uploads.of_bytes(name, data, "", is_image=False)
            for name, data in past_code.files(runs).items()
        ]
        direct = await message_posting.direct_place(self._api, place)
        if complaints := await self._uploads.send(direct, direct.thread, files):
            raise errors.BotError("\n".join(complaints))
        if direct is not place:
            await message_posting.whisper(self._api, place, file_words.SENT_AS_FILE)

    async def _turn(
        self, workspace: installations.InstalledWorkspace, user: str, channel: str, value: str
    ) -> past_turns.PastTurn:
        """Return the turn that a button of a channel names.

        Raises:
            BotError: it is not known, or not to this person.
        """
        await self._permissions.require(workspace, user, channel)
        session, _, turn_id = value.rpartition("/")
        key = requests_in_flight.key_of(session)
        if key is None or (key.workspace, key.channel) != (workspace.team, channel):
            raise errors.BotError(command_words.ANSWER_TOO_OLD)
        return past_code.turn_of(await self._service.queries.history(key), turn_id)

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
        place = message_posting.Place(workspace, channel, thread="", asked="", user=user)
        await message_posting.whisper(self._api, place, text)
