"""From a kernel's messages to outputs, within one execution's budget. Pure."""

from __future__ import annotations

from typing import Final, Literal

from interpreter_bot import settings, values
from interpreter_bot.kernels import harmless, messages, mimes

_NAME_CHARACTERS: Final = 256
_MESSAGE_CHARACTERS: Final = 2000
_TRACEBACK_CHARACTERS: Final = 20_000
_DISPLAY_ID_CHARACTERS: Final = 128
_UPDATES_PER_DISPLAY: Final = 20
_DISPLAYS = frozenset({"execute_result", "display_data", "update_display_data"})

Outputs = tuple[values.Output, ...]


def prompt(text: str) -> str:
    """Make the prompt of an input request harmless."""
    return harmless.clean(text)


class Reader:
    """Reads the outputs of one execution; what is over its limits becomes one notice each."""

    def __init__(self, limits: settings.Limits) -> None:
        self._limits = limits
        self._cleaners = {"stdout": harmless.Cleaner(), "stderr": harmless.Cleaner()}
        self._bytes_left = limits.output_bytes
        self._is_cut = False
        self._displays_left = limits.displays
        self._updates_left = limits.displays * _UPDATES_PER_DISPLAY
        self._is_out_of_displays = False

    def read(self, message: messages.Message) -> Outputs:
        """Translate one message; what is not an output gives none."""
        content = message.content
        if message.msg_type == "stream":
            return self._stream(content)
        if message.msg_type in _DISPLAYS:
            return self._display(content, is_update=message.msg_type == "update_display_data")
        if message.msg_type == "error":
            return (_error(content),)
        if message.msg_type == "clear_output":
            return (values.Clear(wait=content.get("wait") is True),)
        return ()

    def _stream(self, content: dict[str, object]) -> Outputs:
        text, name = content.get("text"), content.get("name")
        if not isinstance(text, str) or self._is_cut:
            return ()
        stream: Literal["stdout", "stderr"] = "stderr" if name == "stderr" else "stdout"
        text = self._cleaners[stream].feed(text)
        encoded = text.encode("utf-8", "replace")
        if len(encoded) <= self._bytes_left:
            self._bytes_left -= len(encoded)
            return (values.Text(stream, text),) if text else ()
        self._is_cut = True
        shown = encoded[: self._bytes_left].decode("utf-8", "ignore")
        self._bytes_left = 0
        notice = f"The output was cut after {self._limits.output_bytes:,} bytes."
        return (values.Text(stream, shown), values.Notice(notice))

    def _display(self, content: dict[str, object], *, is_update: bool) -> Outputs:
        data, transient = content.get("data"), content.get("transient")
        if not isinstance(data, dict):
            return ()
        display_id = transient.get("display_id") if isinstance(transient, dict) else None
        if not isinstance(display_id, str) or len(display_id) > _DISPLAY_ID_CHARACTERS:
            display_id = None
        if not self._spend(is_update=is_update):
            return self._run_out()
        size = mimes.size(data)
        if size > self._limits.display_bytes:
            limit = self._limits.display_bytes / settings.MIB
            notice = f"A display of {size / settings.MIB:.1f} MiB was left out; {limit:.0f} fit."
            return (values.Notice(notice),)
        return (mimes.choose(data, {"display_id": display_id, "is_update": is_update}),)

    def _spend(self, *, is_update: bool) -> bool:
        if is_update:
            self._updates_left -= 1
            return self._updates_left >= 0
        self._displays_left -= 1
        return self._displays_left >= 0

    def _run_out(self) -> Outputs:
        if self._is_out_of_displays:
            return ()
        self._is_out_of_displays = True
        notice = f"Only the first {self._limits.displays} displays of an execution are shown."
        return (values.Notice(notice),)


def _error(content: dict[str, object]) -> values.Error:
    name = _field(content, "ename", _NAME_CHARACTERS) or "Error"
    message = _field(content, "evalue", _MESSAGE_CHARACTERS)
    lines = content.get("traceback")
    texts = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    traceback = harmless.bounded(harmless.clean("\n".join(texts)), _TRACEBACK_CHARACTERS)
    return values.Error(name, message, traceback or f"{name}: {message}")


def _field(content: dict[str, object], name: str, most_characters: int) -> str:
    value = content.get(name)
    return harmless.clean(value)[:most_characters] if isinstance(value, str) else ""
