"""Reader of a kernel's messages: outputs and variable names, within one execution's limits. Pure.

Messages may be hostile, and their content is shown to people and models: it is checked and bounded.
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

_MAX_ERROR_NAME_CHARACTERS: Final = 256
MAX_DISPLAY_BYTES: Final = 12 * settings.MIB
"""Size of one display. It has to fit into a message of 15 MiB."""
_MAX_MESSAGE_CHARACTERS: Final = 2000
_MAX_TOOL_REQUEST_CHARACTERS: Final = 256 * 1024
_MAX_TRACEBACK_CHARACTERS: Final = 20_000
_CUT_FROM_HERE: Final = -1
_MAX_CUT_CHARACTERS: Final = 10**15
_MAX_DISPLAY_ID_CHARACTERS: Final = 128
_MAX_UPDATES_PER_DISPLAY: Final = 20
# One error ends an execution; others are forged, or shown by code that goes on.
_MAX_ERRORS: Final = 10
_DISPLAY_TYPES: Final = frozenset({"execute_result", "display_data", "update_display_data"})
_MAX_NAMES_LISTED: Final = 30
_MAX_NAMES_CHECKED: Final = 100
_MAX_NAMES_COUNTED: Final = 1000
_MAX_VARIABLE_CHARACTERS: Final = 40
# Letters, digits and the underscore, of scripts that are written from left to right. Other letters
# could reverse the sentence that contains a name; combining marks could pile up on it.
_LEFT_TO_RIGHT_CLASSES: Final = frozenset({"L", "EN", "ON"})

Outputs = tuple[values.Output, ...]


def clean_prompt(text: str) -> str:
    """Return the harmless, bounded prompt of an input request."""
    return safe_text.truncate(text, _MAX_MESSAGE_CHARACTERS)


def read_tool_request(message: jupyter_messages.Message) -> str:
    """Return the tool request in an input request; empty if there is none."""
    prompt = message.content.get("prompt")
    request = prompt.get("tools") if isinstance(prompt, dict) else None
    is_short = isinstance(request, str) and len(request) <= _MAX_TOOL_REQUEST_CHARACTERS
    return str(request) if is_short else ""


class OutputReader:
    """Reader of one execution's outputs, which shows one notice for each exceeded limit."""

    def __init__(
        self, limits: settings.Limits, *, max_displays: int = settings.Limits.displays
    ) -> None:
        """Start with the whole budget of `limits`, and with `max_displays`."""
        self.dropped_display_count = 0
        self._max_output_bytes = limits.output_bytes
        self._max_displays = max_displays
        self._cleaners = {
            name: safe_text.Cleaner(keeps_colours=True) for name in ("stdout", "stderr")
        }
        self._bytes_left = dict.fromkeys(self._cleaners, limits.output_bytes)
        self._is_cut = False
        self._cut_streams: set[str] = set()
        self._displays_left = max_displays
        self._updates_left = max_displays * _MAX_UPDATES_PER_DISPLAY
        self._errors_left = _MAX_ERRORS
        self._seen_display_ids: set[str] = set()
        self._last_clear: values.Clear | None = None

    def read(self, message: jupyter_messages.Message) -> Outputs:
        """Translate one message; empty unless it is an output."""
        outputs = self._translate(message.msg_type, message.content)
        if outputs:
            last_output = outputs[-1]
            self._last_clear = last_output if isinstance(last_output, values.Clear) else None
        return outputs

    def _translate(self, message_type: str, content: dict[str, object]) -> Outputs:
        if message_type == "stream":
            return self._read_text(content)
        if message_type in _DISPLAY_TYPES:
            return self._read_display(content, is_update=message_type == "update_display_data")
        if message_type == "error":
            self._errors_left -= 1
            return (_read_error(content),) if self._errors_left >= 0 else ()
        if message_type == "clear_output":
            return self._filter_clear(values.Clear(wait=content.get("wait") is True))
        return ()

    def _read_text(self, content: dict[str, object]) -> Outputs:
        printed, name = content.get("text"), content.get("name")
        outputs: list[values.Output] = []
        if content.get("cut") == _CUT_FROM_HERE and not self._is_cut:
            self._is_cut = True
            outputs.append(values.Notice(run_words.OUTPUT_CUT))
        if not isinstance(printed, str) or not printed:
            return tuple(outputs)
        stream: Literal["stdout", "stderr"] = "stderr" if name == "stderr" else "stdout"
        # Each stream has its own limit, so that warnings do not use up the room of results. Text
        # counts as sent: escape sequences show nothing, but cleaning them takes time.
        bytes_left = self._bytes_left[stream]
        accepted_text = safe_text.truncate_bytes(printed, bytes_left)
        self._bytes_left[stream] = (
            bytes_left - len(accepted_text.encode()) if len(accepted_text) == len(printed) else 0
        )
        if (
            bytes_left
            and type(cut_characters := content.get("cut")) is int
            and 0 < cut_characters < _MAX_CUT_CHARACTERS
        ):
            self._is_cut = True
            outputs.append(values.Notice(run_words.output_cut(cut_characters)))
        if text := self._cleaners[stream].feed(accepted_text):
            outputs.append(values.Text(stream, text))
        if len(accepted_text) < len(printed) and stream not in self._cut_streams:
            self._is_cut = True
            self._cut_streams.add(stream)
            notice = run_words.output_ended(self._max_output_bytes)
            outputs.append(values.Notice(notice))
        return tuple(outputs)

    def _filter_clear(self, clear: values.Clear) -> Outputs:
        # After output was dropped, a clear would remove output that nothing replaces.
        if self._is_cut or self.dropped_display_count:
            return ()
        # A second clear without output in between changes nothing, unless the first one waits for
        # output and the second does not.
        if self._last_clear is not None and (clear.wait or not self._last_clear.wait):
            return ()
        return (clear,)

    def _read_display(self, content: dict[str, object], *, is_update: bool) -> Outputs:
        data = content.get("data")
        if not isinstance(data, dict):
            return ()
        display_id = _display_id(content.get("transient"))
        is_update = is_update and display_id is not None
        if not self._use_display_budget(display_id, is_update=is_update):
            return self._drop_display()
        try:
            output = mime_bundles.choose_form(
                data,
                max_bytes=MAX_DISPLAY_BYTES,
                display_id=display_id,
                is_update=is_update,
            )
        except mime_bundles.DisplayTooLargeError as error:
            return _replace_large_display(error, mime_bundles.plain_text(data))
        return (output,)

    def _use_display_budget(self, display_id: str | None, *, is_update: bool) -> bool:
        if is_update:
            self._updates_left -= 1
            if self._updates_left < 0 or display_id in self._seen_display_ids:
                return self._updates_left >= 0
        # An update of an earlier execution's display counts as a new display.
        self._displays_left -= 1
        if self._displays_left < 0:
            return False
        if display_id is not None:
            self._seen_display_ids.add(display_id)
        return True

    def _drop_display(self) -> Outputs:
        self.dropped_display_count += 1
        if self.dropped_display_count > 1:
            return ()
        notice = run_words.too_many_displays(self._max_displays)
        return (values.Notice(notice),)


def _display_id(transient: object) -> str | None:
    """Return the id of a display; None if it is too long or not printable."""
    name = transient.get("display_id") if isinstance(transient, dict) else None
    if not isinstance(name, str) or not name or len(name) > _MAX_DISPLAY_ID_CHARACTERS:
        return None
    return name if name.isprintable() else None


def _replace_large_display(error: mime_bundles.DisplayTooLargeError, plain: str) -> Outputs:
    notice = values.Notice(run_words.display_too_large(error.size, error.kind))
    return (notice, values.Result(plain=plain)) if plain else (notice,)


def _read_error(content: dict[str, object]) -> values.Error:
    raw_name, raw_message = content.get("ename"), content.get("evalue")
    name = _single_line(raw_name) if isinstance(raw_name, str) else ""
    name = name or "Error"
    full_message = raw_message if isinstance(raw_message, str) else ""
    message = safe_text.truncate(full_message, _MAX_MESSAGE_CHARACTERS)
    traceback = content.get("traceback")
    traceback = traceback if isinstance(traceback, list) else []
    lines = [f"{line}\n" for line in traceback if isinstance(line, str)]
    # Bound the text before searching it, to more than the length of the guest's own tracebacks.
    sent_text = safe_text.elide_middle("".join(lines), 16 * _MAX_TRACEBACK_CHARACTERS).rstrip()
    return values.Error(
        name, message, _bound_traceback(sent_text, _last_line(name, message), full_message)
    )


def _bound_traceback(text: str, last_line: str, full_message: str) -> str:
    """Bound a traceback, and make it end in `last_line`, whose message may be shortened."""
    max_characters = _MAX_TRACEBACK_CHARACTERS - len(last_line) - 1
    if text.endswith(last_line):
        return safe_text.elide_middle(text.removesuffix(last_line), max_characters) + last_line
    if message := safe_text.elide_middle(full_message, 16 * _MAX_TRACEBACK_CHARACTERS).rstrip():
        # Remove the full message; the guest appends " …" if it cut the message itself.
        text_without_ellipsis = text.removesuffix(" …")
        before_message = text_without_ellipsis.removesuffix(message)
        if before_message != text_without_ellipsis:
            text = before_message.rpartition("\n")[0]
    frames = safe_text.elide_middle(text.rstrip(), max_characters)
    return f"{frames}\n{last_line}" if frames else last_line


def _single_line(text: str) -> str:
    return " ".join(safe_text.truncate(text, _MAX_ERROR_NAME_CHARACTERS).split())


def _last_line(name: str, message: str) -> str:
    return f"{name}: {message}".rstrip() if message.strip() else name


@dataclasses.dataclass(frozen=True, slots=True)
class VariableNames:
    """Names of the variables that code has defined.

    Attributes:
        names: the ones defined last, latest first.
        unlisted_count: number of other names.
    """

    names: tuple[str, ...] = ()
    unlisted_count: int = 0


def read_names(content: Mapping[str, object]) -> VariableNames | None:
    """Read the names of variables in a reply; None if it has none in a valid form.

    Only valid Python identifiers of a bounded length are accepted, and only the first ones.
    """
    fields = content.get("variables")
    if not isinstance(fields, dict):
        return None
    raw_names, count = fields.get("names"), fields.get("count")
    if not isinstance(raw_names, list) or type(count) is not int:
        return None
    names = tuple(
        dict.fromkeys(name for name in raw_names[:_MAX_NAMES_CHECKED] if _is_harmless_name(name))
    )
    count = min(max(count, len(names)), _MAX_NAMES_COUNTED)
    first_names = names[:_MAX_NAMES_LISTED]
    return VariableNames(first_names, count - len(first_names))


def _is_harmless_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and len(name) <= _MAX_VARIABLE_CHARACTERS
        and name.isidentifier()
        and all(unicodedata.bidirectional(letter) in _LEFT_TO_RIGHT_CLASSES for letter in name)
    )
