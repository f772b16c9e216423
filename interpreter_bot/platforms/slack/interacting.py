"""Commands and shortcuts, and what buttons do: everything besides writing messages."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import (
    admitting,
    asking,
    commands,
    downloads,
    incoming,
    orders,
    places,
    posts,
    sending,
    showing,
    threads,
    turning,
    workspaces,
)
from interpreter_bot.sessions import requests

RUN_SHORTCUT: Final = "run_message"
ASK_SHORTCUT: Final = "ask_message"
_NOTHING: Final = f"Nothing is running any more that this would stop. {asking.ELSEWHERE}"
_NO_CODE: Final = "There is no code in this message: no code block and no Python snippet."


class Interactions:
    """Does what people press, choose and fill in."""

    def __init__(
        self,
        turns: turning.Turns,
        sender: sending.Sender,
        door: admitting.Doorkeeper,
        known: threads.Threads,
        fetched: downloads.Downloads,
        said: commands.Commands,
        slack: settings.Slack,
    ) -> None:
        self._turns = turns
        self._sender = sender
        self._door = door
        self._threads = known
        self._downloads = fetched
        self._commands = said
        self._options = slack
        self._orders = orders.Orders()

    # Code and questions -------------------------------------------------------------------

    async def run_code(
        self,
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        code: str,
    ) -> None:
        """Run code in the channel's kernel, and show that in the channel.

        Raises:
            BotError: it is not run.
        """
        place = places.Place(workspace, channel, thread="", asked="", user=user)
        key = values.SessionKey("slack", workspace.team, channel)
        async with self._orders.at((workspace.team, channel, "")):
            profile = await self._door.admit(workspace, user, channel)
            ready = await self._begun(key, place, profile, code)
        await ready()

    async def _begun(
        self,
        key: values.SessionKey,
        place: places.Place,
        profile: admitting.Profile,
        code: str,
    ) -> Callable[[], Awaitable[None]]:
        """Give the sign that code is going to run; returns what runs it."""
        person = requests.Person(profile.user, profile.name)
        request = requests.Request(
            key=key, person=person, text=code, is_code=True, id=uuid.uuid4().hex
        )
        heading = showing.heading(profile.name, code)
        show = await self._turns.begin(key, place, request.id, heading=heading)
        return functools.partial(self._turns.take, request, place, show)

    async def run_message(
        self,
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        facts: Mapping[str, Any],
    ) -> None:
        """Run the code of a message, in the thread it belongs to.

        Raises:
            BotError: there is none, or it is not run.
        """
        profile = await self._door.admit(workspace, user, channel)
        code = await self._code_of(workspace, facts)
        place, key = await self._at(workspace, user, channel, facts)
        await (await self._begun(key, place, profile, code))()

    async def _code_of(self, workspace: workspaces.Workspace, facts: Mapping[str, Any]) -> str:
        """Find the code of a message.

        Raises:
            BotError: there is none.
        """
        text = str(facts.get("text") or "")
        found = incoming.preformatted(tuple(facts.get("blocks") or ()))
        found = found or list(incoming.fenced(text))
        if found:
            return "\n".join(found)
        for file in facts.get("files") or ():
            if incoming.is_snippet(file) or str(file.get("name", "")).endswith(".py"):
                return await self._downloads.text(workspace, file)
        raise errors.BotError(_NO_CODE)

    async def _at(
        self,
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        facts: Mapping[str, Any],
    ) -> tuple[places.Place, values.SessionKey]:
        ts = str(facts.get("ts", ""))
        root = str(facts.get("thread_ts") or ts)
        place = places.Place(workspace, channel, thread=root, asked=ts, user=user)
        thread = await self._threads.read(workspace, channel, root, ts)
        own = "" if thread.is_channels else root
        return place, values.SessionKey("slack", workspace.team, channel, own)

    async def ask_about(
        self,
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        ts: str,
        question: str,
    ) -> None:
        """Ask the model about a message, in its thread.

        Raises:
            BotError: it is not asked.
        """
        profile = await self._door.admit(workspace, user, channel)
        facts = await self._message(workspace, channel, ts)
        place, key = await self._at(workspace, user, channel, facts)
        author = ""
        if facts.get("user"):
            author = (await self._door.profile(workspace, str(facts["user"]))).name
        files = tuple(facts.get("files") or ())
        request = requests.Request(
            key=key,
            person=requests.Person(profile.user, profile.name),
            text=question,
            attachments=self._downloads.attachments(workspace, files),
            context=f"{author or 'Somebody'}: {incoming.words(str(facts.get('text') or ''))}",
            id=uuid.uuid4().hex,
            approval=self._options.approval,
        )
        title = turning.title_of(request)
        show = await self._turns.begin(key, place, request.id, title=title)
        await self._turns.take(request, place, show)

    async def _message(
        self, workspace: workspaces.Workspace, channel: str, ts: str
    ) -> Mapping[str, Any]:
        """Read one message, which may stand in a thread.

        Raises:
            BotError: it is gone.
        """
        answer = await self._sender.call(
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
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        text: str,
        tell: commands.Tell,
    ) -> None:
        """Carry out `/interpreter …` for the channel's own session."""
        place = places.Place(workspace, channel, thread="", asked="", user=user)
        try:
            profile = await self._door.admit(workspace, user, channel)
        except admitting.NotAllowedError as error:
            await tell(str(error))
            return
        command = commands.parse(incoming.words(text)) or commands.Command("help")
        if command.name == "py":
            await self.run_code(workspace, user, channel, incoming.code(text.strip()[2:].lstrip()))
            return
        key = values.SessionKey("slack", workspace.team, channel)
        await self._commands.run(command, key, place, profile, tell=tell)

    async def stop(
        self,
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        value: str,
    ) -> None:
        """Stop a request. Everybody who may use the bot there may.

        Raises:
            BotError: they may not.
        """
        await self._door.admit(workspace, user, channel)
        key, request_id = turning.request_of(value)
        if key is None or key.workspace != workspace.team or key.channel != channel:
            return
        if not await self._turns.withdraw(key, request_id):
            raise errors.BotError(_NOTHING)

    async def stop_thread(
        self, workspace: workspaces.Workspace, user: str, channel: str, root: str
    ) -> None:
        """Stop what runs in a thread, as Slack's own button has been pressed there."""
        place = places.Place(workspace, channel, thread=root, asked="", user=user)
        try:
            await self._door.admit(workspace, user, channel)
        except admitting.NotAllowedError as error:
            await posts.whisper(self._sender, place, str(error))
            return
        key = values.SessionKey("slack", workspace.team, channel, root)
        if await self._turns.stop_thread(key, root):
            return
        # Whoever began that died before it could say that it is over.
        await self._sender.call(
            workspace,
            "agents.sessions.setStatus",
            channel_id=channel,
            thread_ts=root,
            status="active",
        )
        await posts.whisper(self._sender, place, _NOTHING)

    async def send_table(
        self, workspace: workspaces.Workspace, user: str, place: places.Place, value: str
    ) -> None:
        """Send the whole of a table, of which an answer shows the head, into its thread.

        Raises:
            BotError: it cannot be had, or not by this person.
        """
        await self._door.admit(workspace, user, place.channel)
        session, _, handle = value.rpartition("/")
        key = turning.key_of(session)
        if key is None or (key.workspace, key.channel) != (workspace.team, place.channel):
            raise errors.BotError("There is no such table.")
        name = await self._turns.conversations.save_table(key, handle)
        if complaints := await self._commands.send_file(key, place, name):
            raise errors.BotError(complaints)

    async def rename(
        self, workspace: workspaces.Workspace, user: str, channel: str, root: str, title: str
    ) -> None:
        """Take over the title that somebody gave a session in Slack.

        Raises:
            NotAllowedError: they may not use the bot there.
        """
        if channel and root and title:
            await self._door.admit(workspace, user, channel)
            key = values.SessionKey("slack", workspace.team, channel, root)
            await self._turns.conversations.rename(key, title[:200])

    async def whisper(
        self, workspace: workspaces.Workspace, user: str, channel: str, text: str
    ) -> None:
        """Tell somebody something, in the channel where they are."""
        place = places.Place(workspace, channel, thread="", asked="", user=user)
        await posts.whisper(self._sender, place, text)
