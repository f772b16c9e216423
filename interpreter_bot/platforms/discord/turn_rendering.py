"""Render a turn log as parts of messages. No network."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.platforms.discord import answer_contents, markdown, message_layout
from interpreter_bot.platforms.rendering import (
    display_items,
    message_splitting,
    output_selection,
    past_code,
)
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import discord_words, question_words, run_words

Wrap: TypeAlias = Callable[[str, str, bytes], message_layout.Upload | str]
"""Makes an upload of a name within the turn, a description and bytes; or says why there is none."""
_Words: TypeAlias = str | message_layout.Line

_OF_MODEL: Final = display_items.Capabilities(
    text_characters=1000,
    text_lines=15,
    table_width=76,
    table_rows=15,
    pictures=display_items.RASTERS,
)
_OF_CODE: Final = display_items.Capabilities(
    text_characters=1700,
    text_lines=40,
    table_width=76,
    table_rows=25,
    pictures=display_items.RASTERS,
)
_CODE_LINES, _CODE_LINES_OF_ALL, _CODE_CHARACTERS = 12, 30, 900
_ANSWER_CHARACTERS: Final = 8 * message_layout.MOST_CHARACTERS
_TAIL_CHARACTERS: Final = 1500
_MOST_PROMPT: Final = 500
_LANGUAGES: Final = {"json": "json", "latex": "tex"}

_MARKS: Final = {
    values.Ending.OK: "✅",
    values.Ending.ERROR: "❌",
    values.Ending.TIMED_OUT: "⏱️",
    values.Ending.OUT_OF_MEMORY: "💥",
    values.Ending.CRASHED: "💥",
    values.Ending.STOPPED: "⏹️",
    values.Ending.REFUSED: "🚫",
}


_STATUS: Final = re.compile(r"\n?^-# (?:⏳|✍️) .*\Z", re.MULTILINE)


def without_status(content: str) -> str:
    """Return the content of a message without the line on what goes on."""
    return _STATUS.sub("", content).rstrip()


class TurnRenderer:
    """Renders one turn log, each time it changes."""

    def __init__(
        self, contents: answer_contents.AnswerContents, wrap: Wrap, *, limit_seconds: float
    ) -> None:
        self._contents = contents
        self._limit = quantities.duration(limit_seconds)
        self._wrap = wrap
        self._chooser = output_selection.OutputSelector(_OF_CODE if contents.is_code else _OF_MODEL)
        self._chosen: dict[int, tuple[display_items.Item, ...]] = {}

    def parts(self, *, in_order: bool = False) -> Iterator[message_layout.Part]:
        """Render its current state: in the end the last words come first, then what came of it.

        Args:
            in_order: all of it is rendered as it came, as before the end.
        """
        log = self._contents
        last = None if in_order else log.last_words
        if log.end is None or last is None:
            for entry in log.entries:
                yield from self._entry(entry)
            yield from self._now() if log.end is None else self._end(log.end)
            return
        yield from self._words(last)
        yield from self._sentence(log.end)
        others = [entry for entry in log.entries if entry is not last and not self._is_out(entry)]
        parts = [part for entry in others for part in self._entry(entry, leaves_out=log.leaves_out)]
        # Discord shows files below the words of a message.
        yield from (part for part in parts if not isinstance(part, message_layout.Upload))
        yield from self._summary(log.end)
        yield from (part for part in parts if isinstance(part, message_layout.Upload))

    def _entry(
        self, entry: answer_contents.Entry, *, leaves_out: bool = False
    ) -> Iterator[message_layout.Part]:
        match entry:
            case answer_contents.Words() if entry.text.strip():
                yield from self._words(entry)
            case answer_contents.Cell():
                yield from self._cell(entry, leaves_out=leaves_out)
            case answer_contents.Note():
                note = markdown.local_times(markdown.plain(entry.text))
                yield markdown.small(f"🔹 {note}")
            case answer_contents.Question():
                yield from self._question(entry)

    def _is_out(self, entry: answer_contents.Entry) -> bool:
        """Say whether the final words stand without an entry."""
        log = self._contents
        if not (log.leaves_out or (log.is_brief and log.end and log.end.turn_id)):
            return False
        return isinstance(entry, answer_contents.Words) and past_code.is_narration(entry.text)

    def _words(self, entry: answer_contents.Words) -> Iterator[message_layout.Part]:
        """Render the model's words; of very many the beginning and, in the end, the end."""
        is_last = entry is self._contents.entries[-1]
        is_whole = self._contents.end is not None or not is_last
        parts: list[_Words] = []
        is_held_back = False
        for block in markdown.blocks(entry.text, is_whole=is_whole):
            if block.is_line:
                parts.append(message_layout.Line(block.text, is_open=block.is_open))
            elif not block.is_open or len(block.text) > message_layout.MOST_CHARACTERS:
                parts += message_splitting.split(block.text, message_layout.MOST_CHARACTERS)
            else:
                is_held_back = True
        head, rest = _divided(parts, _ANSWER_CHARACTERS)
        tail = _last(rest)
        missing = sum(map(_length, rest)) - sum(map(_length, tail))
        if is_whole and not missing:
            yield from parts
            return
        yield from head
        if not is_whole:
            if is_held_back or rest:
                yield _status("✍️ writing …")
            return
        yield markdown.small(discord_words.rest_in_file(missing))
        which = self._contents.entries.index(entry)
        data = entry.text.encode("utf-8", "replace")
        yield self._wrap(f"answer-{which + 1}.md", discord_words.WHOLE_ANSWER, data)
        yield from tail

    def _now(self) -> Iterator[message_layout.Part]:
        """Render what is going on."""
        log = self._contents
        last = log.entries[-1] if log.entries else None
        if log.ahead is not None:
            yield _status(f"⏳ {run_words.queued(log.ahead) or discord_words.ONE_MOMENT}")
        elif log.awaited:
            yield _status(f"⏳ {markdown.plain(log.awaited)} ({_began(log.since)})")
        elif log.draft:
            yield markdown.code(_tail(log.draft, _CODE_LINES, _CODE_CHARACTERS), "py")
            yield _status(f"✍️ {discord_words.WRITING_CODE}")
        elif isinstance(last, answer_contents.Cell) and last.finished is None:
            yield _status(f"⏳ running … ({_began(last.began)}, at most {self._limit})")
        elif isinstance(last, answer_contents.Question) and not last.verdict:
            return
        elif not (isinstance(last, answer_contents.Words) and last.text.strip()):
            thinking = f"⏳ thinking … ({_began(log.since)})"
            yield _status(thinking if log.has_begun else f"⏳ {discord_words.ONE_MOMENT}")

    def _end(self, end: events.TurnEnded) -> Iterator[message_layout.Part]:
        yield from self._sentence(end)
        yield from self._summary(end)

    def _sentence(self, end: events.TurnEnded) -> Iterator[message_layout.Part]:
        log = self._contents
        if end.sentence:
            mark = "⏹️" if end.status is values.TurnStatus.STOPPED else "⚠️"
            yield f"{mark} {markdown.plain(end.sentence)}"
        elif not (log.is_code or log.has_shown or self._has_words()):
            yield markdown.small("Done.")

    def _summary(self, end: events.TurnEnded) -> Iterator[message_layout.Part]:
        log = self._contents
        if log.cells and not (log.is_code or log.is_brief):
            runs = quantities.count(len(log.cells), "run")
            yield markdown.small(f"{runs} · {quantities.duration(end.seconds)}")

    def _has_words(self) -> bool:
        """Say whether text is left after conversion to Discord's Markdown."""
        words = (
            entry for entry in self._contents.entries if isinstance(entry, answer_contents.Words)
        )
        return any(markdown.prose(entry.text).strip() for entry in words)

    def _cell(
        self, cell: answer_contents.Cell, *, leaves_out: bool
    ) -> Iterator[message_layout.Part]:
        log = self._contents
        if log.shows_code:
            yield markdown.code(_head(cell.code, _CODE_LINES_OF_ALL, _CODE_CHARACTERS), "py")
        elif cell.finished is None:
            yield markdown.code(_tail(cell.code, _CODE_LINES, _CODE_CHARACTERS), "py")
        chosen = self._chosen_of(cell)
        for item in chosen:
            if not (leaves_out and past_code.is_left_out(item)):
                yield from self._item(item)
        if cell.finished is not None:
            yield from self._ending(cell.finished, chosen)

    def _chosen_of(self, cell: answer_contents.Cell) -> tuple[display_items.Item, ...]:
        known = self._chosen.get(cell.number)
        if known is not None:
            return known
        chosen = self._chooser.choose(cell.number, cell.screen.items)
        if cell.finished is not None:
            self._chosen[cell.number] = chosen
        return chosen

    def _ending(
        self, finished: values.Finished, chosen: tuple[display_items.Item, ...]
    ) -> Iterator[message_layout.Part]:
        has_error = any(
            isinstance(i, display_items.CodeItem) and i.language == "traceback" for i in chosen
        )
        has_shown = bool(chosen or self._contents.artifacts) or not self._contents.is_code
        told = run_words.ending_sentence(finished, has_shown=has_shown, has_error=has_error)
        if told == run_words.SILENT:
            yield markdown.small(f"{_MARKS[finished.ending]} {told}")
        elif told:
            yield f"{_MARKS[finished.ending]} {markdown.plain(told)}"

    def _question(self, entry: answer_contents.Question) -> Iterator[message_layout.Part]:
        if entry.verdict:
            asked = markdown.line(entry.prompt) if not entry.is_approval else ""
            yield markdown.small(f"{asked} {entry.verdict}".strip())
            return
        yield message_layout.Break(pings=True)
        owner = f"<@{self._contents.owner}>"
        if entry.is_approval:
            yield f"{owner} **{question_words.RUN_THIS}**"
            yield from self._code_to_approve(entry.prompt)
            return
        yield f"{owner} ⌨️ **{question_words.asks('')}**"
        if entry.is_password:
            yield question_words.PASSWORD
        else:
            yield question_words.REPLY_OR_BUTTON
        yield markdown.code(_tail(entry.prompt, 10, _MOST_PROMPT))

    def _code_to_approve(self, code: str) -> Iterator[message_layout.Part]:
        """Render all of the code, as it would run: people approve only what they can see."""
        revealed = safe_text.revealed(code)
        if revealed.warning:
            yield f"⚠️ {revealed.warning}"
        head = _head(revealed.text, 60, 1500)
        block = markdown.code(head, "py")
        yield block
        if head != revealed.text.strip("\n") or head.strip() not in block:
            # Three backticks cannot be written within a block.
            yield markdown.small(question_words.WHOLE_CODE_IN_FILE)
            yield self._wrap("to-approve.py", question_words.WHOLE_CODE, revealed.text.encode())

    def _item(self, item: display_items.Item) -> Iterator[message_layout.Part]:
        match item:
            case display_items.TextItem():
                yield markdown.code(item.text)
            case display_items.CodeItem():
                yield markdown.code(item.text, _LANGUAGES.get(item.language, ""))
            case display_items.TableItem():
                yield markdown.code(item.text)
            case display_items.PictureItem():
                yield self._wrap(item.name, item.alt, item.data)
            case display_items.FileItem():
                yield self._wrap(item.name, item.about, item.data)
            case display_items.PageItem():
                yield self._wrap(item.name, item.title, item.html)
            case display_items.NoteItem():
                yield markdown.small(f"🔹 {markdown.plain(item.text)}")


def _status(text: str) -> message_layout.Status:
    return message_layout.Status(markdown.small(text))


def _began(moment: float) -> str:
    """Return how long ago something began, which Discord counts on by itself."""
    return f"began <t:{int(moment)}:R>"


def _text(part: _Words) -> str:
    return part if isinstance(part, str) else part.text


def _length(part: _Words) -> int:
    return len(_text(part))


def _divided(parts: list[_Words], most_characters: int) -> tuple[list[_Words], list[_Words]]:
    """Divide parts into those that fit and the rest; a line that is longer than a message is
    broken."""
    room = most_characters
    for number, part in enumerate(parts):
        length = _length(part)
        if length > room:
            rest = parts[number:]
            if isinstance(part, str) or length <= message_layout.MOST_CHARACTERS or room < 1:
                return parts[:number], rest
            known = part.text[: room + message_splitting.AHEAD]
            place = message_splitting.break_before(known, room, is_code=False)
            begin, end = part.text[:place], part.text[place:]
            rest[0] = dataclasses.replace(part, text=end)
            return [*parts[:number], message_layout.Line(begin)], rest
        room -= length
    return parts, []


def _last(parts: list[_Words]) -> list[_Words]:
    """Return the last parts with words that fit into one message; of a long line its end."""
    while parts and not _text(parts[-1]).strip():
        parts.pop()
    ends = itertools.accumulate(map(_length, reversed(parts)))
    count = sum(end <= _TAIL_CHARACTERS for end in ends)
    if count or not parts:
        return parts[len(parts) - count :]
    last = parts[-1]
    if isinstance(last, str) or len(last.text) <= message_layout.MOST_CHARACTERS:
        return [last]
    most = len(last.text) - _TAIL_CHARACTERS
    place = message_splitting.break_before(last.text, most, is_code=False)
    if len(last.text) - place > message_layout.MOST_CHARACTERS:
        # The last space is far away.
        place = message_splitting.grapheme_floor(last.text, most)
    return [dataclasses.replace(last, text=last.text[place:].lstrip())]


def _tail(text: str, lines: int, characters: int) -> str:
    text = text.strip("\n")
    cut = "\n".join(text.split("\n")[-lines:])[-characters:]
    return cut if len(cut) == len(text) else f"…\n{cut}"


def _head(text: str, lines: int, characters: int) -> str:
    text = text.strip("\n")
    cut = "\n".join(text.split("\n")[:lines])[:characters]
    return cut if len(cut) == len(text) else f"{cut}\n…"
