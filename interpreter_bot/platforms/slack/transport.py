"""Slack as a transport of chats: posts, edits, streams, pictures and files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import Any, Final

from interpreter_bot import values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    file_uploads,
    handler_dependencies,
    installations,
    markdown,
    message_posting,
    streams,
    thread_history,
    web_api,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import command_words, file_words, run_words, slack_words

_log = logging.getLogger(__name__)

_MAX_MESSAGES: Final = 8
_MAX_FILES: Final = 40
_MAX_FILE_BYTES: Final = 1024**3
_MAX_MESSAGE_BYTES: Final = 8 * 1024**3
_PICTURE_BLOCKS_FEATURE: Final = "pictures in messages"
_FEATURE_RETRY_SECONDS: Final = 600.0
_RATE_LIMIT_PAUSE_SECONDS: Final = 30.0
# Slack's clock may be behind ours by this much.
_CLOCK_SKEW_SECONDS: Final = 30.0
_FIRST_SIGN_SECONDS: Final = 2.0
# Slack takes about 100 pieces of streams and 50 edits a minute, of all answers in a workspace:
# with the usual pauses of one second and three, that is 1.7 answers and 2.5.
_STREAMING_SHARE: Final = 0.6
_EDITING_SHARE: Final = 0.4
_MAX_NAME_CHARACTERS: Final = 80
_STREAM_CONFLICT: Final = "streaming_state_conflict"
# Without a status, Slack shows no Stop button with a stream.
_STREAM_METHODS: Final = ("chat.startStream", "agents.sessions.setStatus")
_DELETED_CODES: Final = frozenset({"message_not_found"})
_UNEDITABLE_CODES: Final = frozenset(
    {"cant_update_message", "edit_window_closed", _STREAM_CONFLICT}
)
_CLOSED_CODES: Final = frozenset(
    {
        *("channel_not_found", "is_archived", "not_in_channel", "restricted_action"),
        *("restricted_action_read_only_channel", "restricted_action_thread_locked"),
        *("team_access_not_granted", "thread_not_found"),
    }
)


@dataclasses.dataclass(eq=False, slots=True)
class LiveAnswer:
    """An answer that this process shows, stored as `Location.handle`.

    Attributes:
        person: id of the person who asked.
        title: of a session that begins with the answer.
        open_streams: by the timestamps of their messages.
        picture_ids: Slack's ids of the pictures that were uploaded.
        staged_files: files that were uploaded and not shared yet, as Slack wants them described.
        unconfirmed_files: ids of files that were shared and not seen yet, by the nonce of their
            post.
    """

    person: str = ""
    title: str = ""
    open_streams: dict[str, streams.Stream] = dataclasses.field(default_factory=dict)
    picture_ids: dict[transport.Upload, str] = dataclasses.field(default_factory=dict)
    staged_files: dict[transport.Upload, dict[str, str]] = dataclasses.field(default_factory=dict)
    unconfirmed_files: dict[str, Sequence[str]] = dataclasses.field(default_factory=dict)


def location(
    place: message_posting.Place, key: values.SessionKey, *, title: str = "", heading: str = ""
) -> transport.Location:
    """Return the location of an answer.

    Args:
        place: of the request.
        key: of the session, as far as it is known yet.
        title: of a session that begins with the answer.
        heading: see `transport.Location`.
    """
    return transport.Location(
        session=key,
        channel=place.channel,
        thread=place.thread,
        heading=heading,
        hint=slack_words.OWN_PYTHON if place.begins_thread else "",
        handle=LiveAnswer(place.user, title),
    )


def _live_answer(location: transport.Location) -> LiveAnswer:
    return location.handle if isinstance(location.handle, LiveAnswer) else LiveAnswer()


class SlackTransport:
    """Sends answers to Slack; see `chat.transport.Transport`."""

    def __init__(self, dependencies: handler_dependencies.HandlerDependencies) -> None:
        self._api = dependencies.api
        self._config = dependencies.config
        self._uploads = dependencies.uploads
        self._threads = dependencies.threads
        self._permissions = dependencies.permissions
        self._workspaces = dependencies.workspaces

    def capabilities(self, location: transport.Location) -> transport.Capabilities:
        return transport.Capabilities(
            max_characters=streams.MAX_CHARACTERS,
            max_messages=_MAX_MESSAGES,
            max_files=_MAX_FILES,
            max_file_bytes=_MAX_FILE_BYTES,
            max_message_bytes=_MAX_MESSAGE_BYTES,
            has_paragraphs=True,
            can_edit_files=False,
            can_stream=self._has_sessions(location)
            and location.channel.startswith("D")
            and not any(
                self._api.lacks(location.session.workspace, method) for method in _STREAM_METHODS
            ),
            has_feedback=True,
            picture_types=file_uploads.PICTURE_TYPES,
            shows_table=blocks.fits_table,
            refresh_seconds=run_words.MIN_ELAPSED_SECONDS,
        )

    def pace(self, location: transport.Location, answer_count: int, *, is_code: bool) -> float:
        """Return the pause; all answers of a workspace share its rates."""
        timing = self._api.timing
        if self.capabilities(location).can_stream and not is_code:
            return timing.streaming_seconds * max(1.0, answer_count * _STREAMING_SHARE)
        return timing.editing_seconds * max(1.0, answer_count * _EDITING_SHARE)

    async def locate(self, request: requests.Request) -> transport.Location:
        key, user = request.key, request.person.id
        workspace = await self._workspaces.get(key.workspace)
        ts = request.id.partition("/")[2]
        thread = key.thread_id or (ts and await self._find_thread(workspace, key.channel, ts))
        place = message_posting.Place(
            workspace, key.channel, thread=thread, request_ts="", user=user
        )
        profile = await self._permissions.profile(workspace, user)
        is_command = request.is_code and not (ts or request.is_job or request.is_scheduled)
        return location(place, key, heading=command_heading(profile.name) if is_command else "")

    async def _find_thread(
        self, workspace: installations.InstalledWorkspace, channel: str, ts: str
    ) -> str:
        """Find the thread of a message that used the channel's own kernel; empty if unknown."""
        try:
            response = await self._api.call(
                workspace, "conversations.replies", channel=channel, ts=ts, limit=1
            )
        except api_errors.SlackError as error:
            _log.info("the thread of a request is not known: %s", error)
            return ""
        messages = response.get("messages") or [{}]
        return str(messages[0].get("thread_ts") or ts)

    def _has_sessions(self, location: transport.Location) -> bool:
        return bool(location.thread)

    @contextlib.asynccontextmanager
    async def show_working(self, location: transport.Location) -> AsyncIterator[None]:
        """Show the status of the session; the first message does not wait for it."""
        if not self._has_sessions(location):
            yield
            return
        status_task = asyncio.create_task(
            # A late status is of no use, so it is not tried for long.
            self._set_status(location, "processing", _FIRST_SIGN_SECONDS),
            name="slack status",
        )
        try:
            yield
        finally:
            if await status_task:
                await self._set_status(location, "active", web_api.MAX_OUTAGE_SECONDS)

    async def _set_status(
        self, location: transport.Location, status: str, max_seconds: float
    ) -> bool:
        """Set the status of the session; return whether it is set, or may be."""
        live_answer = _live_answer(location)
        begins_session = bool(live_answer.title) and status == "processing"
        try:
            await self._api.call(
                await self._workspaces.get(location.session.workspace),
                "agents.sessions.setStatus",
                max_seconds=max_seconds,
                channel_id=location.channel,
                thread_ts=location.thread,
                status=status,
                title=live_answer.title if begins_session else None,
                initiator_user_id=live_answer.person if begins_session else None,
            )
        except api_errors.SlackError as error:
            _log.debug("no session status: %s", error)
            # If the response was lost, it may be set.
            return not isinstance(error, api_errors.RefusedError)
        return True

    # Messages -----------------------------------------------------------------------------

    async def post(
        self, location: transport.Location, draft: transport.Draft, key: transport.PostKey
    ) -> transport.Posted:
        """Post a message, or begin a stream; files get messages of their own."""
        with _translate_errors(is_new=True):
            if draft.uploads:
                ts = await self._post_uploads(location, draft, key)
            else:
                ts = await self._begin_stream(location, draft) if draft.may_grow else ""
                ts = ts or await self._post(location, self._content(location, draft), draft, key)
        return self._note_posted(location, ts, draft)

    def _note_posted(
        self, location: transport.Location, ts: str, draft: transport.Draft
    ) -> transport.Posted:
        posted = _make_posted(location, ts)
        if not location.session.thread:
            team, thread = location.session.workspace, posted.location.thread
            self._threads.note_kernel_use(team, location.channel, thread, uses_channel_kernel=True)
            for button in draft.buttons:
                if button.action == "answer":
                    # Other threads share the session, but only a message in this one may answer.
                    self._threads.note_question(button.subject_id, thread)
        return posted

    async def _post(
        self,
        location: transport.Location,
        content: dict[str, Any],
        draft: transport.Draft,
        key: transport.PostKey,
    ) -> str:
        is_channels_own = not location.thread and not location.session.thread
        kernel = {"kernel": thread_history.CHANNEL_KERNEL} if is_channels_own else {}
        answer = await self._write(
            location,
            "chat.postMessage",
            content,
            is_plain=draft.is_plain,
            is_first_sign=key.index == 0 and not draft.text,
            thread_ts=location.thread or None,
            unfurl_links=False,
            unfurl_media=False,
            metadata=message_posting.make_metadata({"id": key.nonce, **kernel}),
        )
        return str(answer["ts"])

    async def _call(
        self, location: transport.Location, method: str, **arguments: Any
    ) -> web_api.Answer:
        workspace = await self._workspaces.get(location.session.workspace)
        return await self._api.call(workspace, method, channel=location.channel, **arguments)

    async def _write(
        self,
        location: transport.Location,
        method: str,
        content: dict[str, Any],
        *,
        is_plain: bool,
        **arguments: Any,
    ) -> web_api.Answer:
        """Post or update a message; a plain one is written without blocks if Slack refuses it."""
        try:
            return await self._call(location, method, **content, **arguments)
        except api_errors.ContentRefusedError:
            if not is_plain:
                raise
        plain_content = message_posting.make_plain_content(content["blocks"])
        return await self._call(location, method, **plain_content, **arguments)

    def _content(self, location: transport.Location, draft: transport.Draft) -> dict[str, Any]:
        status = _status(draft)
        table = [blocks.table(draft.table)] if draft.table else []
        message_blocks = [
            *blocks.from_markdown(draft.text),
            *table,
            *_status_and_buttons(location, draft),
        ]
        text = markdown.notification(draft.text.strip() or status) or "…"
        return {
            "text": text,
            "blocks": blocks.simplify(message_blocks) if draft.is_plain else message_blocks,
        }

    async def edit(
        self, posted: transport.Posted, former_draft: transport.Draft, draft: transport.Draft
    ) -> transport.Posted:
        """Edit a message; an open stream grows if its draft did."""
        location, ts = posted.location, posted.message_id
        if draft.uploads != former_draft.uploads and (
            draft.uploads or former_draft is not transport.UNKNOWN
        ):
            # For other people than the bot, an edited picture is an empty frame.
            raise transport.UneditableError
        if draft.notified_person and not former_draft.notified_person:
            # An edit notifies nobody, so post a new message.
            raise transport.UneditableError
        with _translate_errors(is_new=False):
            if not draft.uploads and not await self._update_stream(location, ts, draft):
                await self._update(location, ts, draft)
        return self._note_posted(location, ts, draft)

    async def _update(
        self,
        location: transport.Location,
        ts: str,
        draft: transport.Draft,
        *,
        is_again: bool = False,
    ) -> None:
        try:
            await self._write(
                location,
                "chat.update",
                self._content(location, draft),
                is_plain=draft.is_plain,
                ts=ts,
            )
        except api_errors.RefusedError as error:
            if error.code != _STREAM_CONFLICT or is_again:
                raise
            # A former bot left its stream open.
            await self._end_stream(location, ts)
            await self._update(location, ts, draft, is_again=True)

    async def delete(self, posted: transport.Posted) -> None:
        with _translate_errors(is_new=False):
            try:
                await self._call(posted.location, "chat.delete", ts=posted.message_id)
            except api_errors.GoneError:
                raise
            except api_errors.RefusedError as error:
                _log.info("a message could not be deleted: %s", error)

    async def find(
        self, location: transport.Location, key: transport.PostKey, known_ids: Collection[str]
    ) -> transport.Posted | None:
        """Find a message by its nonce; messages of files and streams have none, so compare them."""
        with _translate_errors(is_new=False):
            place, unconfirmed_files = (
                await self._place(location),
                _live_answer(location).unconfirmed_files,
            )
            if key.nonce in unconfirmed_files:
                ts = await self._uploads.find_share(place, unconfirmed_files[key.nonce])
                return None if ts is None else _make_posted(location, ts)
            since = f"{key.first_tried_at - _CLOCK_SKEW_SECONDS:.6f}"
            place = dataclasses.replace(place, request_ts=since)
            for message in await message_posting.read_recent(self._api, place, location.thread):
                ts = str(message["ts"])
                is_ours = place.workspace.is_author_of(message) and ts > since
                if is_ours and ts not in known_ids and self._matches(message, location, key):
                    return _make_posted(location, ts)
        return None

    def _matches(
        self, message: dict[str, Any], location: transport.Location, key: transport.PostKey
    ) -> bool:
        if "metadata" in message:
            return bool(message_posting.metadata_of(message).get("id") == key.nonce)
        if files := message.get("files"):
            names = [str(file.get("name", "")) for file in files]
            return transport.make_digest("", names, ()) == key.digest
        # This process knows the streams of other answers, whose responses arrived.
        is_known = self._api.has_posted(location.channel, str(message["ts"]))
        return location.channel.startswith("D") and not is_known

    async def whisper(self, location: transport.Location, person: str, text: str) -> bool:
        try:
            place = dataclasses.replace(await self._place(location), user=person)
            await message_posting.whisper(self._api, place, text)
        except api_errors.SlackError as error:
            _log.info("a private message could not be sent: %s", error)
            return False
        return True

    async def _place(self, location: transport.Location) -> message_posting.Place:
        workspace, person = (
            await self._workspaces.get(location.session.workspace),
            _live_answer(location).person,
        )
        return message_posting.Place(
            workspace, location.channel, thread=location.thread, request_ts="", user=person
        )

    # Streams ------------------------------------------------------------------------------

    async def _begin_stream(self, location: transport.Location, draft: transport.Draft) -> str:
        """Begin a stream; return the timestamp of its message, empty if Slack refuses it."""
        workspace = await self._workspaces.get(location.session.workspace)
        stream = streams.Stream(self._api, workspace, location.channel)
        stream_draft = dataclasses.replace(draft, status=_status(draft))
        try:
            ts = await stream.start(location.thread, stream_draft)
        except (api_errors.GoneError, api_errors.LostError):
            raise
        except (streams.BrokenStreamError, api_errors.SlackError) as error:
            _log.info("an answer cannot be streamed: %s", error)
            return ""
        _live_answer(location).open_streams[ts] = stream
        return ts

    async def _update_stream(
        self, location: transport.Location, ts: str, draft: transport.Draft
    ) -> bool:
        """Show a draft in the stream of its message; False if that must be edited instead."""
        open_streams = _live_answer(location).open_streams
        stream = open_streams.get(ts)
        if stream is None:
            return False
        stream_draft = dataclasses.replace(draft, status=_status(draft))
        try:
            if draft.may_grow:
                await stream.append(stream_draft)
            elif draft.table is None:
                del open_streams[ts]
                await stream.finish(
                    stream_draft,
                    _status_and_buttons(location, dataclasses.replace(draft, status="")),
                )
            else:
                raise streams.BrokenStreamError("it has a table")
        except streams.BrokenStreamError as error:
            _log.info("an answer is not streamed any further: %s", error)
            open_streams.pop(ts, None)
            await self._end_stream(location, ts)
            return False
        return True

    async def _end_stream(self, location: transport.Location, ts: str) -> None:
        """End a stream, so that its message can be edited; it may have ended already."""
        try:
            metadata = message_posting.make_metadata({})
            await self._call(location, "chat.stopStream", ts=ts, metadata=metadata)
        except api_errors.GoneError:
            raise
        except api_errors.RefusedError as error:
            _log.info("a stream had ended already: %s", error)

    # Files --------------------------------------------------------------------------------

    async def _post_uploads(
        self, location: transport.Location, draft: transport.Draft, key: transport.PostKey
    ) -> str:
        are_pictures = all(upload.is_picture for upload in draft.uploads)
        team = location.session.workspace
        if are_pictures and not self._api.lacks(team, _PICTURE_BLOCKS_FEATURE):
            try:
                return await self._post_pictures(location, draft, key)
            except (api_errors.GoneError, api_errors.LostError):
                raise
            except api_errors.SlackError as error:
                _log.info("pictures are sent as files for a while: %s", error)
                self._api.note_lacking(team, _PICTURE_BLOCKS_FEATURE, _FEATURE_RETRY_SECONDS)
        return await self._post_files(location, draft, key)

    async def _post_pictures(
        self, location: transport.Location, draft: transport.Draft, key: transport.PostKey
    ) -> str:
        """Post a message of pictures; a picture is uploaded only once."""
        ids = _live_answer(location).picture_ids
        if new_pictures := [upload for upload in draft.uploads if upload not in ids]:
            place = await self._place(location)
            new_ids = await self._uploads.upload_pictures(
                place, [*map(file_uploads.outgoing, new_pictures)]
            )
            ids |= dict(zip(new_pictures, new_ids, strict=True))
        picture_blocks = [
            blocks.picture(ids[upload], upload.name, markdown.file_name(upload.alt))
            for upload in draft.uploads
        ]
        content = {"text": slack_words.PICTURE, "blocks": picture_blocks}
        return await self._post(location, content, draft, key)

    async def _post_files(
        self, location: transport.Location, draft: transport.Draft, key: transport.PostKey
    ) -> str:
        """Share files in a message; Slack accepts this before it does it, and may never do it."""
        place, live_answer = await self._place(location), _live_answer(location)
        for upload in draft.uploads:
            if upload not in live_answer.staged_files:
                live_answer.staged_files[upload] = await self._stage(place, upload)
        staged_files = [live_answer.staged_files.pop(upload) for upload in draft.uploads]
        ts = await self._uploads.share(place, location.thread, staged_files)
        if ts is not None:
            return ts
        if key.nonce in live_answer.unconfirmed_files:
            raise transport.FilesRefusedError(draft.uploads, reason=file_words.NOT_SHOWN_BY_SLACK)
        live_answer.unconfirmed_files[key.nonce] = [file["id"] for file in staged_files]
        raise transport.OutcomeUnknownError

    async def _stage(
        self, place: message_posting.Place, upload: transport.Upload
    ) -> dict[str, str]:
        try:
            return await self._uploads.upload(place, file_uploads.outgoing(upload))
        except (api_errors.GoneError, api_errors.LostError, web_api.WaitError):
            raise
        except api_errors.SlackError as error:
            is_too_large = getattr(error, "code", "") == file_uploads.TOO_LARGE_CODE
            reason = "" if is_too_large else str(error)
            raise transport.FilesRefusedError([upload], reason=reason) from error


def command_heading(name: str) -> str:
    """Return the line above the answer to a command, which only its person saw."""
    return command_words.run_by(markdown.escape(name[:_MAX_NAME_CHARACTERS]))


def _make_posted(location: transport.Location, ts: str) -> transport.Posted:
    """Return a posted message; outside of threads, the next ones go into its own thread."""
    return transport.Posted(
        ts, location if location.thread else dataclasses.replace(location, thread=ts)
    )


def _status(draft: transport.Draft) -> str:
    return draft.status.strip("_ ")


def _status_and_buttons(location: transport.Location, draft: transport.Draft) -> list[blocks.Block]:
    """Return the blocks below a message: its status in small print, and its buttons."""
    status = _status(draft)
    note = [blocks.note(status)] if status else []
    return [*note, *blocks.button_rows(draft.buttons, location.session)]


@contextlib.contextmanager
def _translate_errors(*, is_new: bool) -> Iterator[None]:
    """Translate Slack's errors of a call.

    With `is_new` the call posts a message, so an unknown outcome must not be retried.
    """
    try:
        yield
    except api_errors.GoneError as error:
        raise transport.LocationClosedError from error
    except api_errors.RefusedError as error:
        raise _translate_error(error, is_new=is_new) from error
    except web_api.WaitError as error:
        raise transport.RateLimitedError(_RATE_LIMIT_PAUSE_SECONDS) from error
    except api_errors.SlackError as error:
        raise (transport.OutcomeUnknownError if is_new else transport.RetryableError) from error


def _translate_error(error: api_errors.RefusedError, *, is_new: bool) -> transport.TransportError:
    if error.code in _CLOSED_CODES:
        return transport.LocationClosedError(str(error))
    if error.code in _DELETED_CODES and not is_new:
        return transport.DeletedError()
    if error.code in _UNEDITABLE_CODES and not is_new:
        return transport.UneditableError()
    return transport.ContentRefusedError()
