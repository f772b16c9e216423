"""The transport of the socket chat, see `chat.transport.Transport`, and its markup."""

import asyncio
import base64
import contextlib
import json

from interpreter_bot.platforms.chat import markup, transport
from interpreter_bot.text import fences
from tests.fakes.socket_chat import servers

_ERRORS = {
    "deleted": transport.DeletedError,
    "closed": lambda: transport.LocationClosedError("I may not write there."),
    "content refused": transport.ContentRefusedError,
    "uneditable": transport.UneditableError,
}


def location(session):
    """Return the location of a session's answers: its room."""
    room = "/".join(filter(None, (session.channel, session.thread)))
    return transport.Location(session=session, channel=room)


class SocketTransport:
    """Calls the server of the socket chat."""

    def __init__(self, path):
        self._path = path

    def capabilities(self, location):
        return transport.Capabilities(
            max_characters=500,
            max_messages=3,
            max_files=servers.MAX_FILES,
            max_file_bytes=servers.MAX_FILE_BYTES,
            max_message_bytes=servers.MAX_FILES * servers.MAX_FILE_BYTES,
        )

    def pace(self, location, answer_count, *, is_code):
        return 0.01

    async def locate(self, request):
        return location(request.key)

    @contextlib.asynccontextmanager
    async def show_working(self, location):
        yield

    async def messages(self, room=None):
        """Return the messages of a room, or of all rooms."""
        return (await self._call_again("list", room=room))["messages"]

    async def open_thread(self, message):
        """Open the thread of a message; returns the thread's room."""
        return (await self._call_again("thread", message=message))["room"]

    async def post(self, location, draft, key):
        try:
            message = await self._call(
                "post", room=location.channel, nonce=key.nonce, **_content(draft)
            )
        except _SilentError as error:
            raise transport.OutcomeUnknownError from error
        except _RefusedError as error:
            raise _translate_error(error, draft) from error
        return _make_posted(message, location)

    async def find(self, location, key, known_ids):
        try:
            messages = await self.messages(location.channel)
        except _RefusedError as error:
            raise _translate_error(error, transport.Draft("")) from error
        for message in messages:
            digest = transport.make_digest(message["text"], message["files"], message["buttons"])
            is_new = message["moment"] >= key.first_tried_at and str(message["id"]) not in known_ids
            if is_new and digest == key.digest:
                return _make_posted(message, location)
        return None

    async def edit(self, posted, before, draft):
        if draft.notified_person and not before.notified_person:
            raise transport.UneditableError
        names = {upload: name for upload, name in zip(before.uploads, posted.files, strict=False)}
        kept_names = [names[upload] for upload in draft.uploads if upload in names]
        content = _content(draft, kept_names, [u for u in draft.uploads if u not in names])
        try:
            message = await self._call_again("edit", message=int(posted.message_id), **content)
        except _RefusedError as error:
            raise _translate_error(error, draft) from error
        return _make_posted(message, posted.location)

    async def delete(self, posted):
        with contextlib.suppress(_RefusedError):
            await self._call_again("delete", message=int(posted.message_id))

    async def whisper(self, location, person, text):
        await self._call_again("whisper", person=person, text=text)
        return True

    async def _call_again(self, call, **fields):
        """Make a call that is safe to repeat."""
        try:
            return await self._call(call, **fields)
        except _SilentError as error:
            raise transport.RetryableError from error

    async def _call(self, call, **fields):
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=2**22)
        except OSError as error:
            raise transport.RetryableError from error
        with contextlib.closing(writer):
            writer.write(json.dumps({"call": call} | fields).encode() + b"\n")
            line = await reader.readline()
        if not line:
            raise _SilentError
        response = json.loads(line)
        if "error" in response:
            raise _RefusedError(response)
        return response


class _SilentError(Exception):
    """The server did not respond."""


class _RefusedError(Exception):
    """The server refused a call."""


def _translate_error(error, draft):
    (response,) = error.args
    if response["error"] == "limited":
        return transport.RateLimitedError(response["seconds"])
    if response["error"] in ("files refused", "files forbidden"):
        is_forbidden = response["error"] == "files forbidden"
        return transport.FilesRefusedError(draft.uploads, is_forbidden=is_forbidden)
    return _ERRORS[response["error"]]()


def _content(draft, kept=(), uploads=None):
    return {
        "text": draft.full_text,
        "kept": list(kept),
        "files": {
            upload.name: base64.b64encode(_bytes(upload.content)).decode()
            for upload in (draft.uploads if uploads is None else uploads)
        },
        "buttons": [f"{button.action} {button.subject_id}" for button in draft.buttons],
        "notifies": draft.notified_person,
    }


def _bytes(content):
    return content if isinstance(content, bytes) else content.read_bytes()


def _make_posted(message, location):
    return transport.Posted(str(message["id"]), location, tuple(message["files"]))


class SocketMarkup:
    """Plain text in lines and code blocks, without any markup."""

    def blocks(self, text, /, *, is_whole=True):
        lines = text.split("\n")
        for number, line in enumerate(lines, start=1):
            may_grow = not is_whole and number == len(lines)
            yield markup.Block(line, is_line=True, may_grow=may_grow)

    def escape(self, text, /):
        return " ".join(text.split())

    def inline_code(self, text, /):
        return f"`{self.escape(text)[:200]}`"

    def code(self, text, /, language=""):
        return fences.wrap_block(text, language=language, style="broken")

    def small_print(self, text, /):
        return f"({text})"

    def time_since(self, moment, /):
        return "began just now"

    def file_name(self, name, /):
        return name

    def mention(self, person, /):
        return f"@{person}"
