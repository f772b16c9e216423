"""What a kernel's messages show and report, within one execution's budget. Pure.

All of it may be hostile, and is shown to people and models, so it is checked and bounded.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Mapping
from typing import Final, Literal

from interpreter_bot import settings, values
from interpreter_bot.kernels import mime_bundles
from interpreter_bot.kernels.wire import jupyter_messages
from interpreter_bot.text import safe_text
from interpreter_bot.wording import run_words

_NAME_CHARACTERS: Final = 256
MAX_DISPLAY_BYTES: Final = 12 * settings.MIB
"""Of one display. It has to fit into a message of 15 MiB."""
_MESSAGE_CHARACTERS: Final = 2000
_TOOL_REQUEST_CHARACTERS: Final = 256 * 1024
_TRACEBACK_CHARACTERS: Final = 20_000
_CUT_FROM_HERE: Final = -1
_MAX_CUT_CHARACTERS: Final = 10**15
_DISPLAY_ID_CHARACTERS: Final = 128
_UPDATES_PER_DISPLAY: Final = 20
# One error ends an execution; others are forged, or shown by code that goes on.
_MAX_ERRORS: Final = 10
_DISPLAYS: Final = frozenset({"execute_result", "display_data", "update_display_data"})
_MAX_NAMES: Final = 30
_MAX_NAMES_READ: Final = 100
_MAX_COUNTED: Final = 1000
_VARIABLE_CHARACTERS: Final = 40
# Letters, digits and the underscore, of scripts that are written from left to right. Others could
# reverse the sentence that contains a name, and combining marks could pile up on it.
_LEFT_TO_RIGHT: Final = frozenset({"L", "EN", "ON"})

Outputs = tuple[values.Output, ...]


def prompt(text: str) -> str:
    """Return the harmless, bounded prompt of an input request."""
    return safe_text.truncate(text, _MESSAGE_CHARACTERS)


def tool_request(message: jupyter_messages.Message) -> str:
    """Return the tool request in an input request; empty if there is none."""
    prompt = message.content.get("prompt")
    request = prompt.get("tools") if isinstance(prompt, dict) else None
    is_short = isinstance(request, str) and len(request) <= _TOOL_REQUEST_CHARACTERS
    return str(request) if is_short else ""


class OutputReader:
    """Reader of one execution's outputs, which shows one notice for each exceeded limit.

    Attributes:
        dropped_displays: number of displays over the limit.
    """

    def __init__(self, limits: settings.Limits) -> None:
        """`limits` apply to everything that is read."""
        self.dropped_displays = 0
        self._limits = limits
        self._cleaners = {
            name: safe_text.Cleaner(keeps_colours=True) for name in ("stdout", "stderr")
        }
        self._bytes_left = dict.fromkeys(self._cleaners, limits.output_bytes)
        self._is_cut = False
        self._cut_streams: set[str] = set()
        self._displays_left = limits.displays
        self._updates_left = limits.displays * _UPDATES_PER_DISPLAY
        self._errors_left = _MAX_ERRORS
        self._known_ids: set[str] = set()
        self._last_clear: values.Clear | None = None

    def read(self, message: jupyter_messages.Message) -> Outputs:
        """Translate one message; other messages than outputs give an empty result."""
        outputs = self._translate(message.msg_type, message.content)
        if outputs:
            last = outputs[-1]
            self._last_clear = last if isinstance(last, values.Clear) else None
        return outputs

    def _translate(self, kind: str, content: dict[str, object]) -> Outputs:
        if kind == "stream":
            return self._stream(content)
        if kind in _DISPLAYS:
            return self._display(content, is_update=kind == "update_display_data")
        if kind == "error":
            self._errors_left -= 1
            return (_error(content),) if self._errors_left >= 0 else ()
        if kind == "clear_output":
            return self._clear(values.Clear(wait=content.get("wait") is True))
        return ()

    def _stream(self, content: dict[str, object]) -> Outputs:
        printed, name = content.get("text"), content.get("name")
        outputs: list[values.Output] = []
        if content.get("cut") == _CUT_FROM_HERE and not self._is_cut:
            self._is_cut = True
            outputs.append(values.Notice(run_words.OUTPUT_CUT))
        if not isinstance(printed, str) or not printed:
            return tuple(outputs)
        stream: Literal["stdout", "stderr"] = "stderr" if name == "stderr" else "stdout"
        # Each stream has its own limit, so that warnings do not use up the room of results. Text
        # counts as it was sent: escapes show nothing, but cleaning them takes time.
        room = self._bytes_left[stream]
        accepted_text = safe_text.truncate_bytes(printed, room)
        self._bytes_left[stream] = (
            room - len(accepted_text.encode()) if len(accepted_text) == len(printed) else 0
        )
        if room and type(cut := content.get("cut")) is int and 0 < cut < _MAX_CUT_CHARACTERS:
            self._is_cut = True
            outputs.append(values.Notice(run_words.output_cut(cut)))
        if text := self._cleaners[stream].feed(accepted_text):
            outputs.append(values.Text(stream, text))
        if len(accepted_text) < len(printed) and stream not in self._cut_streams:
            self._is_cut = True
            self._cut_streams.add(stream)
            notice = run_words.output_ended(self._limits.output_bytes)
            outputs.append(values.Notice(notice))
        return tuple(outputs)

    def _clear(self, clear: values.Clear) -> Outputs:
        # After output was dropped, a clear would remove output that nothing replaces.
        if self._is_cut or self.dropped_displays:
            return ()
        # A second clear without output in between changes nothing, unless the first one waits for
        # output and the second does not.
        if self._last_clear is not None and (clear.wait or not self._last_clear.wait):
            return ()
        return (clear,)

    def _display(self, content: dict[str, object], *, is_update: bool) -> Outputs:
        data = content.get("data")
        if not isinstance(data, dict):
            return ()
        display_id = _display_id(content.get("transient"))
        is_update = is_update and display_id is not None
        if not self._use_display_budget(display_id, is_update=is_update):
            return self._drop()
        try:
            output = mime_bundles.choose(
                data,
                max_bytes=MAX_DISPLAY_BYTES,
                display_id=display_id,
                is_update=is_update,
            )
        except mime_bundles.DisplayTooLargeError as error:
            return _too_large(error, mime_bundles.plain(data))
        return (output,)

    def _use_display_budget(self, display_id: str | None, *, is_update: bool) -> bool:
        if is_update:
            self._updates_left -= 1
            if self._updates_left < 0 or display_id in self._known_ids:
                return self._updates_left >= 0
        # An update of an earlier execution's display counts as a new display.
        self._displays_left -= 1
        if self._displays_left < 0:
            return False
        if display_id is not None:
            self._known_ids.add(display_id)
        return True

    def _drop(self) -> Outputs:
        self.dropped_displays += 1
        if self.dropped_displays > 1:
            return ()
        notice = run_words.too_many_displays(self._limits.displays)
        return (values.Notice(notice),)


def _display_id(transient: object) -> str | None:
    """Return the id of a display; None if it is too long or not printable."""
    name = transient.get("display_id") if isinstance(transient, dict) else None
    if not isinstance(name, str) or not name or len(name) > _DISPLAY_ID_CHARACTERS:
        return None
    return name if name.isprintable() else None


def _too_large(error: mime_bundles.DisplayTooLargeError, plain: str) -> Outputs:
    notice = values.Notice(run_words.display_too_large(error.size, error.kind))
    return (notice, values.Result(plain=plain)) if plain else (notice,)


def _error(content: dict[str, object]) -> values.Error:
    raw_name, raw_message = content.get("ename"), content.get("evalue")
    name = _single_line(raw_name) if isinstance(raw_name, str) else ""
    name = name or "Error"
    full_message = raw_message if isinstance(raw_message, str) else ""
    message = safe_text.truncate(full_message, _MESSAGE_CHARACTERS)
    traceback = content.get("traceback")
    traceback = traceback if isinstance(traceback, list) else []
    lines = [f"{line}\n" for line in traceback if isinstance(line, str)]
    # Bounded before it is searched, at more than the length of the guest's own tracebacks.
    sent_text = safe_text.elide_middle("".join(lines), 16 * _TRACEBACK_CHARACTERS).rstrip()
    return values.Error(name, message, _traceback(sent_text, _ending(name, message), full_message))


def _traceback(text: str, ending: str, full_message: str) -> str:
    """Bound a traceback, and let it end once in `ending`, which may have a shortened message."""
    room = _TRACEBACK_CHARACTERS - len(ending) - 1
    if text.endswith(ending):
        return safe_text.elide_middle(text.removesuffix(ending), room) + ending
    if message := safe_text.elide_middle(full_message, 16 * _TRACEBACK_CHARACTERS).rstrip():
        # Remove the full message; the guest appends " …" if it cut the message itself.
        uncut = text.removesuffix(" …")
        before_message = uncut.removesuffix(message)
        if before_message != uncut:
            text = before_message.rpartition("\n")[0]
    frames = safe_text.elide_middle(text.rstrip(), room)
    return f"{frames}\n{ending}" if frames else ending


def _single_line(text: str) -> str:
    return " ".join(safe_text.truncate(text, _NAME_CHARACTERS).split())


def _ending(name: str, message: str) -> str:
    return f"{name}: {message}".rstrip() if message.strip() else name


@dataclasses.dataclass(frozen=True, slots=True)
class VariableNames:
    """Defined names.

    Attributes:
        names: the latest first.
        unlisted_count: number of other names.
    """

    names: tuple[str, ...] = ()
    unlisted_count: int = 0


def read_names(content: Mapping[str, object]) -> VariableNames | None:
    """Read the names of variables in a reply; None if it has none in a valid form.

    Only valid Python identifiers are accepted, of a bounded length, and only so many of them.
    """
    fields = content.get("variables")
    if not isinstance(fields, dict):
        return None
    raw_names, count = fields.get("names"), fields.get("count")
    if not isinstance(raw_names, list) or type(count) is not int:
        return None
    names = tuple(dict.fromkeys(name for name in raw_names[:_MAX_NAMES_READ] if _is_harmless(name)))
    count = min(max(count, len(names)), _MAX_COUNTED)
    first_names = names[:_MAX_NAMES]
    return VariableNames(first_names, count - len(first_names))


def _is_harmless(name: object) -> bool:
    return (
        isinstance(name, str)
        and len(name) <= _VARIABLE_CHARACTERS
        and name.isidentifier()
        and all(unicodedata.bidirectional(letter) in _LEFT_TO_RIGHT for letter in name)
    )
