"""Frozen values that cross the layers: keys, outputs, endings, usage, files.

An *output* is one thing that an execution showed; each has a plain text.
"""

from __future__ import annotations

import dataclasses
import decimal
import enum
import hashlib
import urllib.parse
from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

_SCHEDULE_MARK: Final = "-schedule-"
_PRIVATE_PREFIX: Final = "private-"


@dataclasses.dataclass(frozen=True, slots=True)
class SessionKey:
    """Key of a conversation, unique within its platform; parts that a platform lacks are empty."""

    platform: str
    workspace: str = ""
    channel: str = ""
    thread: str = ""

    def is_in(self, places: Collection[str]) -> bool:
        """Return whether it is in a place, such as `slack/T024BE7LD`; no places mean everywhere."""
        parts = (self.platform, self.workspace, self.channel, self.thread)
        prefixes = [tuple(place.split("/")) for place in places]
        return not prefixes or any(parts[: len(prefix)] == prefix for prefix in prefixes)

    def for_schedule(self, schedule_id: int) -> SessionKey:
        """Return the key of the session in which code of a schedule runs."""
        return dataclasses.replace(self, thread=f"{self.thread}{_SCHEDULE_MARK}{schedule_id}")

    @property
    def place(self) -> SessionKey:
        """The key without the mark of `for_schedule`: that of the place that shows the session."""
        return dataclasses.replace(self, thread=self.thread.partition(_SCHEDULE_MARK)[0])

    @property
    def thread_id(self) -> str:
        """The id that a chat network has for the thread; empty outside of threads."""
        return self.place.thread.removeprefix(_PRIVATE_PREFIX)

    def scope(self, person: str = "") -> Scope:
        """Return the scope of a person's choices there; without a person, that of the place."""
        thread = self.place.thread if self.thread.startswith(_PRIVATE_PREFIX) else ""
        return Scope(self.platform, self.workspace, self.channel, person, thread)


def private_thread(thread_id: str) -> str:
    """Return the thread part of the key of a thread that only some people of its channel see."""
    return f"{_PRIVATE_PREFIX}{thread_id}"


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """For whom or where a choice applies. An empty part includes all: `Scope()` is everywhere.

    Attributes:
        thread: a private thread; other threads belong to their channel.
    """

    platform: str = ""
    workspace: str = ""
    channel: str = ""
    person: str = ""
    thread: str = ""

    @property
    def place(self) -> Scope:
        """The scope of the channel; of the person if there is none, as on the page."""
        return dataclasses.replace(self, person="") if self.channel else self

    def includes(self, other: Scope) -> bool:
        """Return whether another scope is this one or within it."""
        parts = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return all(own_part in ("", other_part) for own_part, other_part in parts)


MAX_NOTE_CHARACTERS: Final = 500
"""Longest text of a note that is remembered in a place."""


class Ending(enum.StrEnum):
    """How an execution ended."""

    OK = "ok"
    ERROR = "error"
    """The code raised; variables are kept."""
    TIMED_OUT = "timed out"
    """Wall time ran out; see `Finished.kernel_lost` for whether variables survived."""
    OUT_OF_MEMORY = "out of memory"
    """The kernel was killed for its memory; variables are gone."""
    CRASHED = "crashed"
    """The kernel died by itself (segfault, `os._exit`) or broke the protocol."""
    STOPPED = "stopped"
    """A person (or a limit other than time and memory) stopped it; see `Finished.reason`."""
    REFUSED = "refused"
    """Nothing was run."""
    BACKGROUND = "in background"
    """It has not ended: it goes on as a job, in a turn of its own. Not stored."""


class Placement(NamedTuple):
    """The host of a fleet that has a session.

    Attributes:
        data_id: of the host's data directory.
        epoch: number of the placement, from 1.
        is_announced: people have been told that the session was moved there.
    """

    data_id: str
    epoch: int
    is_announced: bool


class SandboxLevel(enum.StrEnum):
    """The protection of the machine and of other sessions against code; the weakest comes first."""

    NONE = "none"
    """No protection: code may do everything that the bot may."""
    CONTAINER = "container"
    """Landlock, user ids and a system call filter; for machines without namespaces."""
    STANDARD = "standard"
    """Also namespaces."""
    FULL = "full"
    """Also control groups, which limit the memory of sessions and divide processors."""

    @classmethod
    def weakest(cls, levels: Iterable[SandboxLevel]) -> SandboxLevel:
        """Return the weakest of some levels."""
        return min(levels, key=list(cls).index, default=cls.FULL)


class TurnStatus(enum.StrEnum):
    """The state of a turn; all but the first are final."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """Somebody stopped it."""
    FAILED = "failed"
    """It ended with a sentence that says what went wrong."""
    INTERRUPTED = "interrupted"
    """The bot ended during the turn."""


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one model call, or the sum of a turn, of a session, or of a person in a day.

    Attributes:
        input_tokens: read by the model.
        output_tokens: written by it.
        is_estimated: a server did not report its tokens.
        cached_tokens: the part of the input that the server had in its cache.
        cache_write_tokens: the part of the input that it wrote to the cache, if that has a price.
        steps: number of model calls.
        money: in the currency of the price list.
        cpu_seconds: processor time of the kernel.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    is_estimated: bool = False
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    steps: int = 0
    money: decimal.Decimal = decimal.Decimal(0)
    cpu_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.is_estimated or other.is_estimated,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.steps + other.steps,
            self.money + other.money,
            self.cpu_seconds + other.cpu_seconds,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Printed text. `text` may hold carriage returns and escapes of colours: see `safe_text`."""

    stream: Literal["stdout", "stderr"]
    text: str

    @property
    def plain(self) -> str:
        """The text itself."""
        return self.text


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """An exception that ended the execution.

    Attributes:
        name: the class, e.g. `ZeroDivisionError`.
        message: its text, bounded, may be empty.
        traceback: compact, without ANSI escapes, ends in "name: message".
    """

    name: str
    message: str
    traceback: str

    @property
    def plain(self) -> str:
        """The traceback."""
        return self.traceback


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """Base of displays: a fallback text, and an identity if it may be redrawn.

    Attributes:
        plain: the object's own `text/plain`, bounded.
        display_id: set when later outputs may replace this one.
        is_update: this output replaces the earlier one with the same `display_id`.
    """

    plain: str = ""
    display_id: str | None = None
    is_update: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Image(Display):
    """A picture. The plain text of a figure with a title is "Figure: " and the title.

    Attributes:
        mime: one of image/png, image/jpeg, image/svg+xml, image/gif, image/webp.
        data: the file.
        preview: for an SVG, a PNG to show instead; may be empty.
    """

    mime: str
    data: bytes
    preview: bytes = b""

    @property
    def suffix(self) -> str:
        """The file ending that suits `mime`, with its dot."""
        return {"image/jpeg": ".jpg", "image/svg+xml": ".svg"}.get(
            self.mime, "." + self.mime.removeprefix("image/")
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Html(Display):
    """A piece of HTML, as the kernel sent it: hostile until rendered harmless.

    Attributes:
        html: a whole document, or part of one, in UTF-8.
        title: what it is about, one line; may be empty.
        preview: a PNG to show instead; may be empty.
    """

    html: bytes
    title: str = ""
    preview: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table(Display):
    """The head of a data frame or series.

    Attributes:
        columns: names as shown, index columns first.
        rows: the shown rows, each as long as `columns`.
        row_count: rows of the whole table, of which `rows` may be the head.
        column_count: columns of the whole table without its index.
        index_count: how many of the leading `columns` are the index.
        handle: finds the whole table in its kernel, if it still has it; may be empty.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    row_count: int
    column_count: int
    index_count: int = 0
    handle: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the whole table is here, and no cell is cut."""
        shown = (len(self.rows), len(self.columns) - self.index_count)
        is_cut = any(cell.endswith("…") for row in self.rows for cell in row)
        return shown == (self.row_count, self.column_count) and not is_cut


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latex(Display):
    """A formula.

    Attributes:
        latex: with its delimiters as the kernel sent them.
        preview: a PNG to show instead; may be empty.
    """

    latex: str
    preview: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Json(Display):
    """A JSON document as text, indented."""

    json: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result(Display):
    """A value with no richer form than its `plain` text, such as that of `1 + 1`.

    Attributes:
        is_markdown: the text is Markdown, meant to be shown as such.
    """

    is_markdown: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredDisplay(Display):
    """A display with its content in a blob of the store: every image, all HTML.

    Attributes:
        mime: text/html, or one of those of `Image`.
        sha256: of the content, in lower-case hexadecimal digits.
        size_bytes: of the content.
    """

    mime: str
    sha256: str
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Clear:
    """Removal of all earlier output; with `wait`, only when something follows."""

    wait: bool

    @property
    def plain(self) -> str:
        """Empty text."""
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """The bot's own sentence among the outputs, such as that output was cut."""

    text: str

    @property
    def plain(self) -> str:
        """The sentence."""
        return self.text


END_OF_INPUT: Final = "\x04"
"""The answer to `input()` that raises EOFError in the code."""


@dataclasses.dataclass(frozen=True, slots=True)
class InputRequested:
    """Request for input: running code called `input()` (or `getpass`) and waits for an answer.

    Attributes:
        prompt: what is asked.
        is_password: the answer is not to be shown.
        subject: if the bot asks for approval while code runs: of packages to install, of the
            package of a failed import, or of a request to the network; empty for input.
        grant: what can be approved while the kernel lives, such as "POST host:443".
        tool_request: a request to the bot for a tool, not to a person: hostile JSON.
        number: within the execution, from 1; all bots that follow it see the same.
    """

    prompt: str
    is_password: bool
    subject: Literal["", "packages", "import", "request"] = ""
    grant: str = ""
    tool_request: str = ""
    number: int = 0


YES: Final = "yes"
FOR_SESSION: Final = "session"
NO: Final = "no"
"""Answers about approval: once, while the kernel lives, not at all."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """The end of an execution.

    Attributes:
        ending: how it ended.
        seconds: wall time from sending the code to its end.
        reason: a sentence for people; empty only if `ending` is enough.
        kernel_lost: the kernel and all its variables are gone.
    """

    ending: Ending
    seconds: float
    reason: str = ""
    kernel_lost: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class FileInfo:
    """One regular file of a workspace.

    Attributes:
        name: relative path with forward slashes, safe to show.
        size_bytes: its size when listed.
        modified_ns: time of its last change, nanoseconds since the epoch.
    """

    name: str
    size_bytes: int
    modified_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class FileChanges:
    """New and changed files of a workspace since a mark.

    Attributes:
        files: regular files, by name; they may change again before they are read.
        skipped: names of at most 100 files that will not be read, each with the reason, which ends
            the sentence "x was left out: …".
        is_truncated: not all files were scanned, now or at the mark, or more were skipped. Files
            that were not scanned at the mark may count as new.
    """

    files: tuple[FileInfo, ...]
    skipped: tuple[tuple[str, str], ...]
    is_truncated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Artifact:
    """File that code made and the bot gives back.

    Attributes:
        name: relative path in the workspace.
        size_bytes: the number of bytes that were read.
        sha256: their digest, in lower-case hexadecimal digits.
        is_shown: the same picture was displayed in this turn.
    """

    name: str
    size_bytes: int
    sha256: str
    is_shown: bool = False


Output: TypeAlias = Text | Error | Image | Html | Table | Latex | Json | Result | Clear | Notice
"""Any output of an execution."""

StoredOutput: TypeAlias = (
    Text | Error | Table | Latex | Json | Result | Clear | Notice | StoredDisplay
)
"""An output as stored."""

DisplayOutput: TypeAlias = Image | Html | Table | Latex | Json | Result
"""Outputs that are displays."""


def format_key(key: SessionKey) -> str:
    """Write a key as text, unambiguously for any content of its parts."""
    parts = (key.platform, key.workspace, key.channel, key.thread)
    return "/".join(urllib.parse.quote(part, safe="", errors="surrogatepass") for part in parts)


def cache_key(key: SessionKey) -> str:
    """Return an opaque name of a conversation for a model server's prompt cache."""
    return hashlib.sha256(f"prompt cache of {format_key(key)}".encode()).hexdigest()[:32]


def parse_key(key_text: str) -> SessionKey:
    """Parse what `format_key` wrote."""
    parts = (urllib.parse.unquote(part, errors="surrogatepass") for part in key_text.split("/"))
    return SessionKey(*parts)
