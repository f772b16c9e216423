"""The interface to a chat network: locations, message drafts, and calls that post them.

A network's transport sends one message at a time and translates the network's errors to those
below. Callers give complete messages; what differs, and when, is decided in `sync`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from interpreter_bot import errors, values
from interpreter_bot.platforms.rendering import display_items
from interpreter_bot.sessions import requests

ButtonStyle: TypeAlias = Literal["plain", "primary", "success", "danger"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a request came from and its answer goes.

    Attributes:
        channel: to write to.
        thread: within that channel, on networks whose threads are no channels.
        reply_to: the message that the first one replies to; empty for none.
        heading: markup above the answer, such as who gave a command.
        hint: small print below an answer that ran code.
        handle: the network's own way to answer, such as a live interaction; None after a restart.
    """

    session: values.SessionKey
    channel: str
    thread: str = ""
    reply_to: str = ""
    heading: str = ""
    hint: str = ""
    handle: object = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Button:
    """A button of the bot. It carries all its data, so it works after a restart.

    Attributes:
        action: what it does.
        subject_id: of the request, turn, question or table that it is about.
        owner: id of the person whose answer or question it is below.
    """

    action: str
    subject_id: str
    owner: str
    label: str = ""
    style: ButtonStyle = "plain"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of a message. Contents are not compared: `version` tells them apart.

    Attributes:
        id: names it within the answer.
        version: differs when its content does.
        alt: describes it for people who cannot see it.
        is_picture: it is shown as one.
        content: its bytes, or where they are on disk until the answer stands.
        is_gone: its content is gone: a message that has the file can be recognized, but none sent.
    """

    id: str
    version: int
    name: str
    size_bytes: int
    content: bytes | pathlib.Path = dataclasses.field(compare=False)
    alt: str = ""
    is_picture: bool = False
    is_gone: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """One wanted message.

    Attributes:
        text: in the network's markup.
        status: what goes on right now, below the text.
        table: below the text, where the network shows tables.
        may_grow: the text may get longer; a network that streams appends what is new.
        is_plain: the message was refused, so it is sent without markup.
        notified_person: who is to be notified of it; empty for nobody.
    """

    text: str
    status: str = ""
    uploads: tuple[Upload, ...] = ()
    buttons: tuple[Button, ...] = ()
    notified_person: str = ""
    table: values.Table | None = None
    may_grow: bool = False
    is_plain: bool = False

    @property
    def full_text(self) -> str:
        """All that is read: the text, and the status below it."""
        return "\n".join(filter(None, (self.text, self.status)))


UNKNOWN: Final = Draft("", uploads=(Upload(id="", version=0, name="", size_bytes=0, content=b""),))
"""The draft of a message of a former bot: what it shows is unknown, so no other draft equals it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PostKey:
    """Idempotency key of a post, as its response may be lost.

    Attributes:
        request_id: that the answer is to.
        index: of the message within the answer.
        nonce: of this post; a network that takes one posts nothing under it twice.
        digest: of the message; see `make_digest`.
        first_tried_at: when it was posted first, in wall-clock time.
    """

    request_id: str
    index: int
    nonce: str
    digest: str
    first_tried_at: float


def make_digest(text: str, file_names: Iterable[str], buttons: Iterable[str]) -> str:
    """Return a digest of a message's text and the names of its files and buttons."""
    content = "\0".join((text.strip(), *file_names, *buttons))
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class Posted:
    """A posted message.

    Attributes:
        location: where it stands; the messages after it go there, too.
        files: its files as the network knows them, in the order of the draft's uploads.
    """

    message_id: str
    location: Location
    files: tuple[object, ...] = dataclasses.field(default=(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Limits of messages in one location.

    Attributes:
        max_characters: of the text of a message; some are left for its status.
        max_messages: number of messages of text; a longer text becomes a file.
        max_files: in one message.
        max_file_bytes: of the largest file.
        max_message_bytes: of all files of a message.
        has_paragraphs: an empty line separates them, as in Markdown.
        can_edit_files: a message with words may have files, also after it was posted; otherwise
            files have messages of their own, and so have pictures.
        can_stream: words that only grow are appended to a message.
        has_feedback: people can rate answers.
        picture_types: MIME types that are shown as pictures.
        shows_table: whether a message shows a table as such.
        refresh_seconds: how often a wait is drawn anew, if the network does not count its time.
    """

    max_characters: int
    max_messages: int
    max_files: int
    max_file_bytes: int
    max_message_bytes: int
    has_paragraphs: bool = False
    can_edit_files: bool = True
    can_stream: bool = False
    has_feedback: bool = False
    picture_types: frozenset[str] = display_items.RASTER_TYPES
    shows_table: Callable[[values.Table], bool] = lambda _: False
    refresh_seconds: float | None = None


class Transport(Protocol):
    """Sends messages. Calls raise `TransportError`s only."""

    def capabilities(self, location: Location) -> Capabilities:
        """Return the limits of messages at a location."""

    async def locate(self, request: requests.Request) -> Location:
        """Return the location of an answer to a request of a former bot, or of a schedule."""

    def pace(self, location: Location, answer_count: int, *, is_code: bool) -> float:
        """Return the seconds between two edits of an answer.

        Args:
            location: where the answer is shown.
            answer_count: of the answers that are being shown in its workspace, with this one.
            is_code: it answers code, not words.
        """

    def show_working(self, location: Location) -> contextlib.AbstractAsyncContextManager[None]:
        """Show that the bot works on an answer, as long as the context lasts."""

    async def post(self, location: Location, draft: Draft, key: PostKey) -> Posted:
        """Post a message; a key prevents a second post if the network supports that."""

    async def find(
        self, location: Location, key: PostKey, known_ids: Collection[str]
    ) -> Posted | None:
        """Return the message that was posted under a key; None if none is found.

        Args:
            location: where it was posted.
            key: under which that was tried.
            known_ids: ids of messages that are known not to be it.
        """

    async def edit(self, posted: Posted, former_draft: Draft, draft: Draft) -> Posted:
        """Edit a message into another draft; only what differs is sent."""

    async def delete(self, posted: Posted) -> None:
        """Delete a message; one that is gone already is no error."""

    async def whisper(self, location: Location, person: str, text: str) -> bool:
        """Tell a person something that others do not see; False if that is not possible."""


class TransportError(errors.BotError):
    """A network did not do what was asked."""


class RetryableError(TransportError):
    """The network did not do it now; it may later."""


class OutcomeUnknownError(RetryableError):
    """The outcome is unknown: look for the message before trying again."""


class RateLimitedError(RetryableError):
    """The network will not do it before some time has passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds: Final = seconds


class DeletedError(TransportError):
    """A person deleted the message, so it is not posted again."""


class UneditableError(TransportError):
    """The message cannot be edited to this draft; a new one must replace it."""


class FilesRefusedError(TransportError):
    """The network refused the files of a message, but not its words."""

    def __init__(
        self, uploads: Sequence[Upload], *, is_forbidden: bool = False, reason: str = ""
    ) -> None:
        """Refuse files.

        Args:
            is_forbidden: no files may be sent there at all.
            reason: a sentence; if it is empty, and files are not forbidden, these are too large.
        """
        super().__init__()
        self.uploads: Final = uploads
        self.is_forbidden: Final = is_forbidden
        self.reason: Final = reason


class ContentRefusedError(TransportError):
    """The message is refused for what it says; another may be sent in its place."""


class LocationClosedError(TransportError):
    """Nothing can be shown at a location any more; the sentence, if any, tells people why."""
