"""Discord as a transport of chats: messages in channels, and answers to interactions."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, Final

import discord

from interpreter_bot import values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    persistent_buttons,
    rate_limits,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import discord_words

_log = logging.getLogger(__name__)

MAX_CHARACTERS: Final = 1900
"""Of the text of a message; with its status, Discord accepts 2,000."""
_MAX_MESSAGES: Final = 8
_MAX_FILES: Final = 10
_MAX_MESSAGE_BYTES: Final = 24 * 1024 * 1024
"""Of all files of one message together; Discord refuses a larger request as a whole."""
_TYPING_SECONDS: Final = 8.0
_WHISPER_SECONDS: Final = 20.0
_MAX_SEARCHED_MESSAGES: Final = 100
# Discord's clock may be behind ours by this much.
_CLOCK_SKEW_SECONDS: Final = 30.0
_TOO_LARGE: Final = 413
_BAD_REQUEST: Final = 400
_SERVER_ERROR: Final = 500
_TOKEN_ERRORS: Final = frozenset({api_errors.TOKEN_EXPIRED, api_errors.UNKNOWN_WEBHOOK})
_UNEDITABLE_CODES: Final = frozenset({api_errors.TOO_MANY_EDITS, api_errors.ARCHIVED})
# `ARCHIVED` is returned only for locked threads; a message reopens others.
_CLOSED_CODES: Final = api_errors.CANNOT_DIRECT | {
    api_errors.UNKNOWN_CHANNEL,
    api_errors.NO_ACCESS,
    api_errors.NO_PERMISSION,
    api_errors.ARCHIVED,
}


@dataclasses.dataclass(eq=False, slots=True)
class LiveInteraction:
    """An interaction that was acknowledged and is being answered, stored as `Location.handle`.

    Attributes:
        message_ids: of the messages that were sent with its token.
        is_over: its token has expired.
    """

    interaction: discord.Interaction[Any]
    message_ids: set[int] = dataclasses.field(default_factory=set)
    is_over: bool = False

    @property
    def is_live(self) -> bool:
        """Whether its token can still be used."""
        self.is_over = self.is_over or self.interaction.is_expired()
        return not self.is_over

    def note_expiry(self, error: discord.HTTPException) -> None:
        """Record that the token has expired, if an error says so; raise any other error."""
        if error.code not in _TOKEN_ERRORS:
            raise error
        self.is_over = True


class DiscordTransport:
    """Sends answers to Discord; see `chat.transport.Transport`.

    Attributes:
        client: sends everything.
        limits: the client's rate limits.
    """

    def __init__(
        self, client: discord.Client, limits: rate_limits.RateLimits, edit_seconds: float
    ) -> None:
        self._edit_seconds = edit_seconds
        self.client = client
        self.limits = limits

    def capabilities(self, location: transport.Location) -> transport.Capabilities:
        guild = self.client.get_guild(_guild_id(location) or 0)
        return transport.Capabilities(
            max_characters=MAX_CHARACTERS,
            max_messages=_MAX_MESSAGES,
            max_files=_MAX_FILES,
            max_file_bytes=channels_and_threads.file_bytes(guild),
            max_message_bytes=_MAX_MESSAGE_BYTES,
        )

    def pace(self, location: transport.Location, answer_count: int, *, is_code: bool) -> float:
        return self._edit_seconds

    async def locate(self, request: requests.Request) -> transport.Location:
        return session_location(request.key)

    @contextlib.asynccontextmanager
    async def show_working(self, location: transport.Location) -> AsyncIterator[None]:
        """Show the typing indicator; for an interaction Discord shows "thinking" itself.

        The last typing request may outlive the block, if the library waits for a rate limit.
        """
        is_over = asyncio.Event()
        if location.handle is None:
            self.limits.spawn(type_until(is_over, self._channel(location).typing), "typing")
        try:
            yield
        finally:
            is_over.set()

    async def post(
        self, location: transport.Location, draft: transport.Draft, key: transport.PostKey
    ) -> transport.Posted:
        """Post a message; the first response to an interaction replaces "thinking"."""
        with _translate_errors(location, draft, is_new=True):
            live_interaction = location.handle
            if not isinstance(live_interaction, LiveInteraction):
                return await self._send(location, draft, key)
            if key.index == 0 and live_interaction.is_live:
                try:
                    message = await live_interaction.interaction.edit_original_response(
                        content=draft.full_text or None,
                        attachments=open_files(draft.uploads),
                        view=persistent_buttons.view(draft.buttons),
                        allowed_mentions=_allowed_mentions(draft),
                    )
                except discord.HTTPException as error:
                    live_interaction.note_expiry(error)
                else:
                    live_interaction.message_ids.add(message.id)
                    return _make_posted(message, location)
            try:
                return await self._send(location, draft, key)
            except discord.Forbidden as error:
                _log.info("an answer continues through its interaction", exc_info=error)
                return await self._post_without_access(location, live_interaction, draft, key)

    async def _post_without_access(
        self,
        location: transport.Location,
        live_interaction: LiveInteraction,
        draft: transport.Draft,
        key: transport.PostKey,
    ) -> transport.Posted:
        """Post without access to the channel: as a follow-up, or else as a direct message.

        A follow-up has no nonce and cannot be looked up. If one may have arrived, the rest goes as
        direct messages, so that nothing appears twice.
        """
        if live_interaction.is_live:
            try:
                message: discord.Message = await live_interaction.interaction.followup.send(
                    draft.full_text,
                    files=open_files(draft.uploads),
                    view=persistent_buttons.view(draft.buttons) or discord.utils.MISSING,
                    allowed_mentions=_allowed_mentions(draft),
                    suppress_embeds=True,
                    wait=True,
                )
            except api_errors.UNSENT:
                raise
            except api_errors.CONNECTION as error:
                _log.info("a follow-up may have been sent", exc_info=error)
            except discord.HTTPException as error:
                live_interaction.note_expiry(error)
            else:
                live_interaction.message_ids.add(message.id)
                return _make_posted(message, location)
        channel = await live_interaction.interaction.user.create_dm()
        channel_id = str(channel.id)
        session = values.SessionKey(channels_and_threads.PLATFORM, "", channel_id)
        direct_messages = transport.Location(session=session, channel=channel_id)
        return await self._send(direct_messages, draft, key)

    async def _send(
        self, location: transport.Location, draft: transport.Draft, key: transport.PostKey
    ) -> transport.Posted:
        """Post a message as the bot; the first may be a reply."""
        fields: dict[str, Any] = {}
        if location.reply_to and key.index == 0:
            request_message = self._channel(location).get_partial_message(int(location.reply_to))
            fields["reference"] = request_message.to_reference(fail_if_not_exists=False)
        try:
            message = await self._channel(location).send(
                draft.full_text or None,
                files=open_files(draft.uploads),
                view=persistent_buttons.view(draft.buttons) or discord.utils.MISSING,
                allowed_mentions=_allowed_mentions(draft),
                suppress_embeds=True,
                nonce=key.nonce,
                **fields,
            )
        except discord.HTTPException as error:
            if not fields or error.code != api_errors.NO_REPLIES:
                raise
            # Without permission to read earlier messages, the bot can post but not reply.
            return await self._send(dataclasses.replace(location, reply_to=""), draft, key)
        return _make_posted(message, location)

    async def find(
        self, location: transport.Location, key: transport.PostKey, known_ids: Collection[str]
    ) -> transport.Posted | None:
        """Look for a message among the latest; Discord returns no nonces, so compare digests."""
        earliest = datetime.datetime.fromtimestamp(
            key.first_tried_at - _CLOCK_SKEW_SECONDS, datetime.UTC
        )
        after = discord.Object(discord.utils.time_snowflake(earliest))
        with _translate_errors(location, transport.Draft(""), is_new=False):
            try:
                async for message in self._channel(location).history(
                    limit=_MAX_SEARCHED_MESSAGES, after=after
                ):
                    if (
                        message.author == self.client.user
                        and str(message.id) not in known_ids
                        and _digest(message) == key.digest
                    ):
                        return _make_posted(message, location)
            except discord.Forbidden as error:
                _log.info("the latest messages could not be searched", exc_info=error)
        return None

    async def edit(
        self, posted: transport.Posted, former_draft: transport.Draft, draft: transport.Draft
    ) -> transport.Posted:
        """Edit a message; files that stay are not sent again."""
        location, live_interaction = posted.location, posted.location.handle
        fields = {
            "content": draft.full_text or None,
            "attachments": _attachments(posted, former_draft, draft),
            "view": persistent_buttons.view(draft.buttons),
            "allowed_mentions": _allowed_mentions(draft),
        }
        with _translate_errors(location, draft, is_new=False):
            message_id = int(posted.message_id)
            if (
                isinstance(live_interaction, LiveInteraction)
                and message_id in live_interaction.message_ids
            ):
                if live_interaction.is_live:
                    try:
                        edited = await live_interaction.interaction.followup.edit_message(
                            message_id, **fields
                        )
                        return _make_posted(edited, location)
                    except discord.HTTPException as error:
                        live_interaction.note_expiry(error)
            elif draft.notified_person and not former_draft.notified_person:
                # An edit notifies nobody, so post a new message.
                raise transport.UneditableError
            try:
                message = (
                    await self._channel(location).get_partial_message(message_id).edit(**fields)
                )
            except discord.Forbidden as error:
                if live_interaction is None:
                    raise
                raise transport.UneditableError from error
            return _make_posted(message, location)

    async def delete(self, posted: transport.Posted) -> None:
        live_interaction, message_id = posted.location.handle, int(posted.message_id)
        with _translate_errors(posted.location, transport.Draft(""), is_new=False):
            try:
                if (
                    isinstance(live_interaction, LiveInteraction)
                    and message_id in live_interaction.message_ids
                    and live_interaction.is_live
                ):
                    await live_interaction.interaction.followup.delete_message(message_id)
                else:
                    await self._channel(posted.location).get_partial_message(message_id).delete()
            except (discord.NotFound, discord.Forbidden) as error:
                _log.info("a message could not be deleted", exc_info=error)

    async def whisper(self, location: transport.Location, person: str, text: str) -> bool:
        """Send a person a direct message."""

        async def send() -> None:
            channel = await self.client.create_dm(discord.Object(int(person)))
            no_mentions = discord.AllowedMentions.none()
            await channel.send(text, suppress_embeds=True, allowed_mentions=no_mentions)

        try:
            await self.limits.within(_WHISPER_SECONDS, send())
        except api_errors.ANY as error:
            _log.info("a private message could not be sent: %r", error)
            return False
        return True

    def _channel(self, location: transport.Location) -> discord.PartialMessageable:
        return self.client.get_partial_messageable(
            int(location.channel), guild_id=_guild_id(location)
        )


async def type_until(is_over: asyncio.Event, type_: Callable[[], Awaitable[object]]) -> None:
    """Show the typing indicator until the event is set."""
    while not is_over.is_set():
        try:
            await type_()
        except api_errors.ANY as error:
            _log.debug("typing could not be shown", exc_info=error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TYPING_SECONDS):
                await is_over.wait()


def session_location(key: values.SessionKey) -> transport.Location:
    """Return the location of a session's channel or thread."""
    return transport.Location(session=key, channel=str(channels_and_threads.channel_id_of(key)))


def open_files(uploads: Iterable[transport.Upload]) -> list[discord.File]:
    """Open files for a request, which closes them."""
    return [
        discord.File(
            io.BytesIO(upload.content) if isinstance(upload.content, bytes) else upload.content,
            filename=upload.name,
            description=upload.alt or None,
        )
        for upload in uploads
    ]


def _attachments(
    posted: transport.Posted, former_draft: transport.Draft, draft: transport.Draft
) -> Any:  # noqa: ANN401
    """Return the attachments of an edit; files that the message has already are not sent again."""
    if former_draft.uploads == draft.uploads:
        return discord.utils.MISSING
    posted_files = dict(zip(former_draft.uploads, posted.files, strict=False))
    return [posted_files.get(upload) or open_files((upload,))[0] for upload in draft.uploads]


def _make_posted(message: discord.Message, location: transport.Location) -> transport.Posted:
    return transport.Posted(str(message.id), location, tuple(message.attachments))


def _allowed_mentions(draft: transport.Draft) -> discord.AllowedMentions:
    """Allow a message to notify at most one person besides the one it replies to."""
    people = [discord.Object(int(draft.notified_person))] if draft.notified_person else False
    return discord.AllowedMentions(everyone=False, roles=False, users=people, replied_user=True)


def _digest(message: discord.Message) -> str:
    return transport.make_digest(
        message.content,
        [file.filename for file in message.attachments],
        [
            f"{button.action} {button.subject_id}"
            for button in persistent_buttons.of_message(message)
        ],
    )


def _guild_id(location: transport.Location) -> int | None:
    return int(location.session.workspace) if location.session.workspace else None


@contextlib.contextmanager
def _translate_errors(
    location: transport.Location, draft: transport.Draft, *, is_new: bool
) -> Iterator[None]:
    """Translate Discord's errors of a call.

    With `is_new` the call posts a message, so an unknown outcome must not be retried.
    """
    try:
        yield
    except api_errors.UNSENT as error:
        raise transport.RetryableError from error
    except discord.HTTPException as error:
        raise _translate_error(error, location, draft, is_new=is_new) from error
    except api_errors.CONNECTION as error:
        raise (transport.OutcomeUnknownError if is_new else transport.RetryableError) from error


def _translate_error(
    error: discord.HTTPException,
    location: transport.Location,
    draft: transport.Draft,
    *,
    is_new: bool,
) -> transport.TransportError:
    if error.code == api_errors.UNKNOWN_MESSAGE:
        return transport.DeletedError()
    if error.code in _UNEDITABLE_CODES and not is_new:
        return transport.UneditableError()
    if is_new and error.status >= _SERVER_ERROR:
        return transport.OutcomeUnknownError()
    if draft.uploads and error.code == api_errors.NO_PERMISSION:
        return transport.FilesRefusedError(draft.uploads, is_forbidden=True)
    is_too_large = error.status == _TOO_LARGE or error.code in api_errors.FILES_REFUSED
    if draft.uploads and is_too_large:
        return transport.FilesRefusedError(draft.uploads)
    if error.code in _CLOSED_CODES:
        is_forbidden = isinstance(error, discord.Forbidden)
        sentence = discord_words.not_allowed_to_write(int(location.channel)) if is_forbidden else ""
        return transport.LocationClosedError(sentence)
    if error.status == _BAD_REQUEST:
        return transport.ContentRefusedError()
    return transport.RetryableError()
