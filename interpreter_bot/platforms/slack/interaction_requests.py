"""Interactions that become requests: code to be run, and questions about a message.

Slack sends an interaction once. Each is claimed before it is handled, together with the data that
another bot needs to handle it again if this one is killed before the request begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.chat import claims, in_flight
from interpreter_bot.platforms.slack import (
    api_errors,
    handler_dependencies,
    installations,
    message_events,
    message_parsing,
    message_posting,
)
from interpreter_bot.platforms.slack import transport as slack_transport
from interpreter_bot.sessions import event_claims, past_turns, requests
from interpreter_bot.wording import command_words, run_words

_log = logging.getLogger(__name__)

_PLATFORM: Final = "slack"


class InteractionRequests:
    """Turns interactions into requests, and starts them."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        requests_in_flight: in_flight.RequestsInFlight,
    ) -> None:
        self._events = shared.service.events
        self._config = shared.config
        self._api = shared.api
        self._workspaces = shared.workspaces
        self._permissions = shared.permissions
        self._threads = shared.threads
        self._downloads = shared.downloads
        self._in_flight = requests_in_flight
        self._claims = claims.OrderedClaims(_PLATFORM, shared.service.events)

    async def run_code(self, place: message_posting.Place, code: str) -> None:
        """Run code in the channel's kernel, and show it in the channel."""
        await self._claim_and_run(place, {"root": "", "code": code})

    async def run_message(self, place: message_posting.Place, message: Mapping[str, Any]) -> None:
        """Run the code of a message, in the thread it belongs to."""
        root = str(message.get("thread_ts") or message.get("ts", ""))
        await self._claim_and_run(place, {"root": root, "message": dict(message)})

    async def ask_about(self, place: message_posting.Place, ts: str, question: str) -> None:
        """Ask the model about a message, in its thread."""
        await self._claim_and_run(place, {"root": ts, "question": question})

    async def run_again(
        self, place: message_posting.Place, key: values.SessionKey, turn: past_turns.PastTurn
    ) -> None:
        """Run the request of an earlier turn again, in its session."""
        content = {
            "root": place.thread,
            "session": key.thread,
            "again": turn.record.request,
            "is_code": turn.is_code,
            "files": [*turn.record.attachments],
        }
        await self._claim_and_run(place, content)

    @contextlib.asynccontextmanager
    async def claimed_command(self, place: message_posting.Place) -> AsyncIterator[None]:
        """Claim a command that runs within the block: if this bot dies, people are told of it."""
        event_id = uuid.uuid4().hex
        key = values.SessionKey(_PLATFORM, place.workspace.team, place.channel)
        await self._events.claim(_PLATFORM, event_id, key=key)
        async with self._events.settling(_PLATFORM, event_id):
            yield

    async def handle_again(self, event: event_claims.LostEvent) -> None:
        """Handle an interaction that a dead bot had claimed."""
        workspace = await self._workspaces.get(event.key.workspace)
        place = message_posting.Place(
            workspace, event.key.channel, thread="", request_ts="", user=str(event.content["user"])
        )
        try:
            await self._claim_and_run(place, event.content, claimed_id=event.event_id)
        except api_errors.GoneError:
            raise
        except Exception as error:
            # The claim keeps every other process from answering.
            if not isinstance(error, errors.BotError):
                _log.exception("an interaction could not be handled again")
            sentence = run_words.error_sentence(error)
            await message_posting.whisper(self._api, place, sentence)

    async def _claim_and_run(
        self, place: message_posting.Place, content: Mapping[str, Any], *, claimed_id: str = ""
    ) -> None:
        """Claim an interaction, unless `claimed_id` did; then prepare and start its request."""
        event_id = claimed_id or uuid.uuid4().hex
        root = str(content["root"])
        envelope = claims.Envelope(
            event_id=event_id,
            key=values.SessionKey(_PLATFORM, place.workspace.team, place.channel, root),
            request_id=event_id,
            content={**content, "user": place.user},
        )
        prepare = functools.partial(self._prepare, place, content, event_id)
        await self._claims.handle(envelope, prepare, is_claimed=bool(claimed_id))

    async def _prepare(
        self, place: message_posting.Place, content: Mapping[str, Any], event_id: str
    ) -> claims.StartRequest:
        """Check permissions and show a first sign; return the function that starts the request."""
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        person = profile.person
        if "question" in content:
            return await self._prepare_question(place, person, content, event_id)
        if "again" in content:
            return await self._prepare_rerun(place, person, content, event_id)
        if "message" in content:
            code = await self._find_code(place.workspace, content["message"])
            place, key = await self._place_and_key(place, content["message"])
        else:
            code = str(content["code"])
            place = dataclasses.replace(place, thread="")
            key = values.SessionKey(_PLATFORM, place.workspace.team, place.channel)
        request = requests.Request(key=key, person=person, text=code, is_code=True, id=event_id)
        return await self._begin_answer(place, request)

    async def _begin_answer(
        self, place: message_posting.Place, request: requests.Request, *, title: str = ""
    ) -> claims.StartRequest:
        """Show that an answer begins, and return the function that has the request answered."""
        person, is_code = request.person, request.is_code
        heading = slack_transport.command_heading(person.name) if is_code else ""
        location = slack_transport.location(place, request.key, title=title, heading=heading)
        author_preferences = await self._in_flight.find_preferences(request.key, person.id)
        entry = self._in_flight.open_entry(request.id, person.id, location)
        reply = self._in_flight.begin_answer(
            entry, is_code=is_code, shows_code=is_code or author_preferences.show_code
        )
        if not place.thread:
            # In a channel where the bot cannot post, nothing runs.
            await reply.wait_for_first_sign()
        return functools.partial(self._in_flight.answer, entry, request)

    async def _prepare_rerun(
        self,
        place: message_posting.Place,
        person: requests.Person,
        content: Mapping[str, Any],
        event_id: str,
    ) -> claims.StartRequest:
        team, session_thread = place.workspace.team, str(content["session"])
        request = requests.Request(
            key=values.SessionKey(_PLATFORM, team, place.channel, session_thread),
            person=person,
            text=str(content["again"]),
            files=tuple(content["files"]),
            is_code=bool(content["is_code"]),
            id=event_id,
        )
        place = dataclasses.replace(place, thread=str(content["root"]))
        return await self._begin_answer(place, request)

    async def _prepare_question(
        self,
        place: message_posting.Place,
        person: requests.Person,
        content: Mapping[str, Any],
        event_id: str,
    ) -> claims.StartRequest:
        workspace = place.workspace
        message = await self._fetch_message(workspace, place.channel, str(content["root"]))
        place, key = await self._place_and_key(place, message)
        author_name = ""
        if message.get("user"):
            author_name = (await self._permissions.profile(workspace, str(message["user"]))).name
        files = tuple(message.get("files") or ())
        text = message_parsing.readable_text(str(message.get("text") or ""))
        request = requests.Request(
            key=key,
            person=person,
            text=str(content["question"]),
            attachments=self._downloads.make_attachments(workspace, files),
            recent=(requests.RecentMessage(speaker=author_name, text=text, is_referred=True),),
            id=event_id,
        )
        return await self._begin_answer(place, request, title=message_events.title_of(request.text))

    async def _find_code(
        self, workspace: installations.InstalledWorkspace, message: Mapping[str, Any]
    ) -> str:
        """Return the code of a message."""
        text = str(message.get("text") or "")
        code_blocks = message_parsing.rich_text_code(tuple(message.get("blocks") or ()))
        code_blocks = code_blocks or message_parsing.fenced_code(text)
        if code_blocks:
            return "\n".join(code_blocks)
        for file in message.get("files") or ():
            if message_parsing.is_snippet(file) or str(file.get("name", "")).endswith(".py"):
                return await self._downloads.read_text(workspace, file)
        raise errors.BotError(command_words.NO_CODE)

    async def _place_and_key(
        self, place: message_posting.Place, message: Mapping[str, Any]
    ) -> tuple[message_posting.Place, values.SessionKey]:
        """Return the place of an answer to a message, and the session of its thread."""
        ts = str(message.get("ts", ""))
        root = str(message.get("thread_ts") or ts)
        workspace, channel = place.workspace, place.channel
        thread = await self._threads.read(workspace, channel, root, ts)
        session_root = "" if thread.uses_channel_kernel else root
        key = values.SessionKey(_PLATFORM, workspace.team, channel, session_root)
        return dataclasses.replace(place, thread=root, request_ts=ts), key

    async def _fetch_message(
        self, workspace: installations.InstalledWorkspace, channel: str, ts: str
    ) -> Mapping[str, Any]:
        """Fetch one message, which may stand in a thread."""
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
        for message in answer.get("messages", ()):
            if message.get("ts") == ts:
                return dict(message)
        raise errors.BotError(command_words.MESSAGE_GONE)
