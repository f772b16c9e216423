"""Interactions that become requests: code to be run, and questions about a message.

Slack sends an interaction once. Each of these is claimed before anything is done about it, with all
that is needed to take it again: a bot that is killed before it has begun leaves it to the next one.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.chat import claims
from interpreter_bot.platforms.slack import (
    api_errors,
    handler_dependencies,
    installations,
    message_parsing,
    message_posting,
    requests_in_flight,
)
from interpreter_bot.sessions import event_claims, past_turns, requests
from interpreter_bot.wording import command_words, run_words

_log = logging.getLogger(__name__)

_PLATFORM: Final = "slack"


class InteractionRequests:
    """Makes requests of interactions, and has them answered."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        in_flight: requests_in_flight.RequestsInFlight,
    ) -> None:
        self._events = shared.service.events
        self._config = shared.config
        self._api = shared.api
        self._workspaces = shared.workspaces
        self._permissions = shared.permissions
        self._threads = shared.threads
        self._downloads = shared.downloads
        self._in_flight = in_flight
        self._claims = claims.OrderedClaims(_PLATFORM, shared.service.events)

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
        await self._take(workspace, {"user": user, "channel": channel, "root": "", "code": code})

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
        root = str(facts.get("thread_ts") or facts.get("ts", ""))
        about = {"user": user, "channel": channel, "root": root}
        await self._take(workspace, about | {"facts": dict(facts)})

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
        about = {"user": user, "channel": channel, "root": ts}
        await self._take(workspace, about | {"question": question})

    async def run_again(
        self, place: message_posting.Place, key: values.SessionKey, turn: past_turns.PastTurn
    ) -> None:
        """Run the request of an earlier turn again, in its session.

        Raises:
            BotError: it is not run.
        """
        content = {
            "user": place.user,
            "channel": place.channel,
            "root": place.thread,
            "session": key.thread,
            "again": turn.request,
            "is_code": turn.is_code,
            "files": [*turn.attachments],
        }
        await self._take(place.workspace, content)

    @contextlib.asynccontextmanager
    async def awaited(
        self, workspace: installations.InstalledWorkspace, channel: str
    ) -> AsyncIterator[None]:
        """Let people be told where this bot dies meanwhile, of what may have been done already."""
        name = uuid.uuid4().hex
        key = values.SessionKey(_PLATFORM, workspace.team, channel)
        await self._events.claim(_PLATFORM, name, key=key)
        async with self._events.settled(_PLATFORM, name):
            yield

    async def handle_again(self, event: event_claims.LostEvent) -> None:
        """Take an interaction that a bot had claimed which is gone."""
        workspace = await self._workspaces.get(event.key.workspace)
        user, channel = str(event.content["user"]), event.key.channel
        try:
            await self._take(workspace, event.content, claimed=event.event_id)
        except api_errors.GoneError:
            raise
        except Exception as error:
            # No other process answers it: it is claimed.
            if not isinstance(error, errors.BotError):
                _log.exception("an interaction could not be taken again")
            place = message_posting.Place(workspace, channel, thread="", asked="", user=user)
            sentence = run_words.error_sentence(error)
            await message_posting.whisper(self._api, place, sentence)

    async def _take(
        self,
        workspace: installations.InstalledWorkspace,
        content: Mapping[str, Any],
        *,
        claimed: str = "",
    ) -> None:
        """Claim an interaction, unless it is; make its request in turn, and have it answered."""
        place = (workspace.team, str(content["channel"]), str(content["root"]))
        name = claimed or uuid.uuid4().hex
        envelope = claims.Envelope(
            name=name,
            key=values.SessionKey(_PLATFORM, *place),
            request_id=name,
            content=content,
        )
        begin = functools.partial(self._begun, workspace, content, name)
        await self._claims.handle(envelope, begin, is_claimed=bool(claimed))

    async def _begun(
        self,
        workspace: installations.InstalledWorkspace,
        content: Mapping[str, Any],
        name: str,
    ) -> claims.StartRequest:
        """Give the first sign of a request, if its person may; return what has it answered."""
        user, channel = str(content["user"]), str(content["channel"])
        profile = await self._permissions.require(workspace, user, channel)
        person = requests.Person(profile.user, profile.name)
        if "question" in content:
            return await self._question(workspace, person, content, name)
        if "again" in content:
            return await self._again(workspace, person, content, name)
        if "facts" in content:
            code = await self._code_of(workspace, content["facts"])
            place, key = await self._at(workspace, user, channel, content["facts"])
        else:
            code = str(content["code"])
            place = message_posting.Place(workspace, channel, thread="", asked="", user=user)
            key = values.SessionKey(_PLATFORM, workspace.team, channel)
        request = requests.Request(key=key, person=person, text=code, is_code=True, id=name)
        return await self._in_flight.open_code(place, request)

    async def _again(
        self,
        workspace: installations.InstalledWorkspace,
        person: requests.Person,
        content: Mapping[str, Any],
        name: str,
    ) -> claims.StartRequest:
        channel = str(content["channel"])
        place = message_posting.Place(
            workspace, channel, thread=str(content["root"]), asked="", user=person.id
        )
        request = requests.Request(
            key=values.SessionKey(_PLATFORM, workspace.team, channel, str(content["session"])),
            person=person,
            text=str(content["again"]),
            files=tuple(content["files"]),
            is_code=bool(content["is_code"]),
            id=name,
            approval=self._config.approval,
        )
        entry = await self._in_flight.open(
            request.key, place, name, person, is_code=request.is_code
        )
        return functools.partial(self._in_flight.answer, entry, request)

    async def _question(
        self,
        workspace: installations.InstalledWorkspace,
        person: requests.Person,
        content: Mapping[str, Any],
        name: str,
    ) -> claims.StartRequest:
        channel = str(content["channel"])
        facts = await self._message(workspace, channel, str(content["root"]))
        place, key = await self._at(workspace, person.id, channel, facts)
        author = ""
        if facts.get("user"):
            author = (await self._permissions.profile(workspace, str(facts["user"]))).name
        files = tuple(facts.get("files") or ())
        words = message_parsing.words(str(facts.get("text") or ""))
        request = requests.Request(
            key=key,
            person=person,
            text=str(content["question"]),
            attachments=self._downloads.attachments(workspace, files),
            recent=(requests.RecentMessage(speaker=author, text=words, is_referred=True),),
            id=name,
            approval=self._config.approval,
        )
        title = requests_in_flight.title_of(request)
        entry = await self._in_flight.open(key, place, name, person, title=title)
        return functools.partial(self._in_flight.answer, entry, request)

    async def _code_of(
        self, workspace: installations.InstalledWorkspace, facts: Mapping[str, Any]
    ) -> str:
        """Return the code of a message.

        Raises:
            BotError: there is none.
        """
        text = str(facts.get("text") or "")
        blocks = message_parsing.preformatted(tuple(facts.get("blocks") or ()))
        blocks = blocks or message_parsing.fenced(text)
        if blocks:
            return "\n".join(blocks)
        for file in facts.get("files") or ():
            if message_parsing.is_snippet(file) or str(file.get("name", "")).endswith(".py"):
                return await self._downloads.text(workspace, file)
        raise errors.BotError(command_words.NO_CODE)

    async def _at(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        facts: Mapping[str, Any],
    ) -> tuple[message_posting.Place, values.SessionKey]:
        ts = str(facts.get("ts", ""))
        root = str(facts.get("thread_ts") or ts)
        place = message_posting.Place(workspace, channel, thread=root, asked=ts, user=user)
        thread = await self._threads.read(workspace, channel, root, ts)
        own = "" if thread.uses_channel_kernel else root
        return place, values.SessionKey(_PLATFORM, workspace.team, channel, own)

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
        raise errors.BotError(command_words.MESSAGE_GONE)
