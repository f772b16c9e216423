"""A story as parts of messages: what is shown of it, and in which words. No network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.discord import escaping, sheets, stories
from interpreter_bot.platforms.rendering import choosing, endings, items, splitting
from interpreter_bot.sessions import ports
from interpreter_bot.text import formatting, sanitizing

Wrap: TypeAlias = Callable[[str, str, bytes], sheets.Upload | str]
"""Makes a file of its name within the turn, a description, the bytes; or says why there is none."""

_OF_MODEL: Final = items.Capabilities(
    text_characters=1000, text_lines=15, table_width=76, table_rows=15, pictures=items.RASTERS
)
_OF_CODE: Final = items.Capabilities(
    text_characters=1700, text_lines=40, table_width=76, table_rows=25, pictures=items.RASTERS
)
_CODE_LINES, _CODE_LINES_OF_ALL, _CODE_CHARACTERS = 12, 30, 900
_ANSWER_PAGES: Final = 4
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


class Teller:
    """Tells one story, as often as it changes."""

    def __init__(self, story: stories.Story, wrap: Wrap) -> None:
        self._story = story
        self._wrap = wrap
        self._chooser = choosing.Chooser(_OF_CODE if story.is_code else _OF_MODEL)
        self._chosen: dict[int, tuple[items.Item, ...]] = {}

    def parts(self) -> Iterator[sheets.Part]:
        """Tell it as it stands."""
        for entry in self._story.entries:
            match entry:
                case stories.Words():
                    yield from self._words(entry)
                case stories.Cell():
                    yield from self._cell(entry)
                case stories.Note():
                    yield escaping.small(f"🔹 {escaping.plain(entry.text)}")
                case stories.Question():
                    yield from self._question(entry)
        if self._story.end is None:
            yield from self._now()
        else:
            yield from self._end(self._story.end)

    def _words(self, entry: stories.Words) -> Iterator[sheets.Part]:
        text = escaping.prose(entry.text)
        if len(text) <= _ANSWER_PAGES * sheets.MOST_CHARACTERS:
            yield text
            return
        yield from splitting.split(text, sheets.MOST_CHARACTERS)[: _ANSWER_PAGES - 1]
        if self._story.end is not None:
            yield escaping.small("The whole answer is in the file.")
            which = self._story.entries.index(entry)
            data = entry.text.encode("utf-8", "replace")
            yield self._wrap(f"answer-{which + 1}.md", "The whole answer", data)

    def _now(self) -> Iterator[sheets.Part]:
        """Tell what is going on."""
        story = self._story
        last = story.entries[-1] if story.entries else None
        if story.ahead is not None:
            before = "1 request comes" if story.ahead == 1 else f"{story.ahead} requests come"
            yield escaping.small(f"⏳ {before} before yours.")
        elif story.awaited:
            yield escaping.small(f"⏳ {escaping.plain(story.awaited)}")
        elif story.draft:
            yield escaping.code(_tail(story.draft, _CODE_LINES, _CODE_CHARACTERS), "py")
            yield escaping.small("✍️ writing code …")
        elif isinstance(last, stories.Cell) and last.finished is None:
            yield escaping.small("⏳ running …")
        elif isinstance(last, stories.Question) and not last.verdict:
            return
        elif not (isinstance(last, stories.Words) and last.text.strip()):
            yield escaping.small("⏳ thinking …" if story.has_begun else "⏳ one moment …")

    def _end(self, end: ports.End) -> Iterator[sheets.Part]:
        story = self._story
        if end.sentence:
            mark = "⏹️" if end.status is ports.Status.STOPPED else "⚠️"
            yield f"{mark} {escaping.plain(end.sentence)}"
        elif not (story.is_code or story.has_shown or self._has_words()):
            yield escaping.small("There is nothing to add.")
        if story.cells and not story.is_code:
            runs = formatting.count(len(story.cells), "run")
            yield escaping.small(f"{runs} · {formatting.duration(end.seconds)}")

    def _has_words(self) -> bool:
        """Say whether words are left once they are written as Discord wants them."""
        words = (entry for entry in self._story.entries if isinstance(entry, stories.Words))
        return any(escaping.prose(entry.text).strip() for entry in words)

    def _cell(self, cell: stories.Cell) -> Iterator[sheets.Part]:
        story = self._story
        if story.shows_code:
            yield escaping.code(_head(cell.code, _CODE_LINES_OF_ALL, _CODE_CHARACTERS), "py")
        elif cell.finished is None:
            yield escaping.code(_tail(cell.code, _CODE_LINES, _CODE_CHARACTERS), "py")
        if cell.finished is not None and not story.is_code:
            lines = cell.code.strip().count("\n") + 1
            words = formatting.count(lines, "line")
            mark = _MARKS[cell.finished.ending]
            yield escaping.small(
                f"{mark} {words} of Python · {formatting.duration(cell.finished.seconds)}"
            )
        chosen = self._chosen_of(cell)
        for item in chosen:
            yield from self._item(item)
        if cell.finished is not None:
            yield from self._ending(cell.finished, chosen)

    def _chosen_of(self, cell: stories.Cell) -> tuple[items.Item, ...]:
        known = self._chosen.get(cell.number)
        if known is not None:
            return known
        chosen = self._chooser.choose(cell.number, cell.screen.items)
        if cell.finished is not None:
            self._chosen[cell.number] = chosen
        return chosen

    def _ending(
        self, finished: values.Finished, chosen: tuple[items.Item, ...]
    ) -> Iterator[sheets.Part]:
        has_error = any(isinstance(i, items.Code) and i.language == "traceback" for i in chosen)
        has_shown = bool(chosen or self._story.artifacts) or not self._story.is_code
        told = endings.sentence(finished, has_shown=has_shown, has_error=has_error)
        if told == endings.SILENT:
            yield escaping.small(f"{_MARKS[finished.ending]} {told}")
        elif told:
            yield f"{_MARKS[finished.ending]} {escaping.plain(told)}"

    def _question(self, entry: stories.Question) -> Iterator[sheets.Part]:
        if entry.verdict:
            asked = escaping.line(entry.prompt) if not entry.is_approval else ""
            yield escaping.small(f"{asked} {entry.verdict}".strip())
            return
        yield sheets.Break(pings=True)
        owner = f"<@{self._story.owner}>"
        if entry.is_approval:
            yield f"{owner} **May this be run?**"
            yield from self._code_to_approve(entry.prompt)
            return
        yield f"{owner} ⌨️ **The code asks for input.** Reply here, or press Answer."
        if entry.is_password:
            yield "It is a password: press Answer, so that nobody else reads it."
        yield escaping.code(_tail(entry.prompt, 10, _MOST_PROMPT))

    def _code_to_approve(self, code: str) -> Iterator[sheets.Part]:
        """Show all of it, as it would run: nobody approves what they cannot see."""
        revealed = sanitizing.revealed(code)
        if revealed.warning:
            yield f"⚠️ {revealed.warning}"
        head = _head(revealed.text, 60, 1500)
        yield escaping.code(head, "py")
        if head != revealed.text.strip("\n"):
            yield escaping.small("That is the beginning; all of it is in the file.")
            yield self._wrap("to-approve.py", "The whole code", revealed.text.encode())

    def _item(self, item: items.Item) -> Iterator[sheets.Part]:
        match item:
            case items.Said():
                yield escaping.code(item.text)
            case items.Code() if item.language == "traceback" and not self._story.is_code:
                # A model sees it and tries again; to people its last line says enough.
                last = item.text.strip().rpartition("\n")[2]
                yield escaping.small(escaping.line(last))
            case items.Code():
                yield escaping.code(item.text, _LANGUAGES.get(item.language, ""))
            case items.TableItem():
                yield escaping.code(item.text)
            case items.PictureItem():
                yield self._wrap(item.name, item.alt, item.data)
            case items.FileItem():
                yield self._wrap(item.name, item.about, item.data)
            case items.PageItem():
                yield self._wrap(item.name, item.title, item.html.encode("utf-8", "replace"))
            case items.Note():
                yield escaping.small(f"🔹 {escaping.plain(item.text)}")


def _tail(text: str, lines: int, characters: int) -> str:
    text = text.strip("\n")
    cut = "\n".join(text.split("\n")[-lines:])[-characters:]
    return cut if len(cut) == len(text) else f"…\n{cut}"


def _head(text: str, lines: int, characters: int) -> str:
    text = text.strip("\n")
    cut = "\n".join(text.split("\n")[:lines])[:characters]
    return cut if len(cut) == len(text) else f"{cut}\n…"
