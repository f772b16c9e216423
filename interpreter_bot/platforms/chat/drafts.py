"""Draw the log of a turn as parts of messages. No network."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import layout, markup, transport
from interpreter_bot.platforms.rendering import (
    display_items,
    message_splitting,
    output_selection,
    past_code,
    tables,
)
from interpreter_bot.sessions import questions, turn_log
from interpreter_bot.text import output_screens, quantities, safe_text
from interpreter_bot.wording import (
    chat_words,
    job_words,
    model_words,
    question_words,
    run_words,
)

Attach: TypeAlias = Callable[[str, str, bytes], transport.Upload | str]
"""Makes an upload of a name within the turn, a description and bytes; or says why there is none."""
_WordsPart: TypeAlias = str | layout.Line

_MODEL_DISPLAY: Final = display_items.Capabilities(
    text_characters=1000, text_lines=15, max_table_width=76, max_table_rows=15
)
_CODE_DISPLAY: Final = display_items.Capabilities(
    text_characters=1700, text_lines=40, max_table_width=76, max_table_rows=25
)
_MAX_TAIL_LINES, _MAX_CODE_LINES, _MAX_CODE_CHARACTERS = 12, 30, 900
_MAX_PROMPT_CHARACTERS: Final = 500
_LANGUAGES: Final = {"json": "json", "latex": "tex"}
# A kernel's handle is hostile: anything else would not fit into a button.
_TABLE_HANDLE: Final = re.compile(r"t([0-9]{1,12})")
_MAX_BRIEF_CHARACTERS: Final = 300
_MAX_BRIEF_LINES: Final = 4
_MAX_LAST_LINE_CHARACTERS: Final = 200

_JOB_ENDS: Final[Mapping[values.TurnStatus | values.Ending, Callable[[float], str]]] = {
    values.Ending.OK: job_words.job_done,
    values.Ending.STOPPED: job_words.job_stopped,
    values.TurnStatus.DONE: job_words.job_done,
    values.TurnStatus.STOPPED: job_words.job_stopped,
}
_ENDING_EMOJI: Final = {
    values.Ending.OK: "✅",
    values.Ending.ERROR: "❌",
    values.Ending.TIMED_OUT: "⏱️",
    values.Ending.OUT_OF_MEMORY: "💥",
    values.Ending.CRASHED: "💥",
    values.Ending.STOPPED: "⏹️",
    values.Ending.REFUSED: "🚫",
    values.Ending.BACKGROUND: "⏳",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStyle:
    """How an answer is shown.

    Attributes:
        owner: id of the person who asked: only they are notified, and answer questions.
        is_code: the request is code, not words.
        shows_code: code stays visible when it has run.
        limit_seconds: how long a piece of code may run.
        heading: markup above the answer.
        hint: what people should know of the session, below an answer of a model that ran code.
        is_job: its code goes on in the background. What the code showed comes with its end, in a
            message that notifies the owner.
    """

    owner: str
    is_code: bool
    shows_code: bool
    limit_seconds: float
    heading: str = ""
    hint: str = ""
    is_job: bool = False


class TurnDrawing:
    """Draws the log of one turn, each time it changes.

    Attributes:
        hides_code: not all of the code that is to be approved can be seen.
    """

    def __init__(
        self,
        log: turn_log.TurnLog,
        style: AnswerStyle,
        markdown: markup.Markup,
        capabilities: transport.Capabilities,
        attach: Attach,
    ) -> None:
        self._log = log
        self._style = style
        self._markdown = markdown
        self._capabilities = capabilities
        self._attach = attach
        display_capabilities = dataclasses.replace(
            _CODE_DISPLAY if style.is_code else _MODEL_DISPLAY,
            pictures=capabilities.picture_types,
            shows_table=capabilities.shows_table,
        )
        self._selector = output_selection.OutputSelector(display_capabilities)
        self._selected_items: dict[int, tuple[display_items.Item, ...]] = {}
        self._is_streamed = capabilities.can_stream and not style.is_code
        self._uploads_at_end: list[transport.Upload] = []
        self._draw_count = 0
        self._first_draws_of_uploads: dict[str, int] = {}
        self._draw_of_last_upload = 0
        self.hides_code = False

    @property
    def is_growing(self) -> bool:
        """Whether only words follow what is drawn."""
        log = self._log
        return self._is_streamed and log.end is None and log.open_question is None

    def parts(self) -> Iterator[layout.Part]:
        """Draw the current state; in the end the last words come first, then tables and files."""
        log = self._log
        self.hides_code = False
        self._uploads_at_end = []
        self._draw_count += 1
        self._draw_of_last_upload = 0
        if self._style.heading:
            yield self._style.heading
        yield from self._draw_parts()
        if log.end is not None:
            yield from sorted(self._uploads_at_end, key=lambda upload: not upload.is_picture)

    def _draw_parts(self) -> Iterator[layout.Part]:
        log = self._log
        last_words = self._last_words
        if self._style.is_job and log.end is not None and not log.end.goes_on:
            # A message of its own, as nobody is notified of one that changes.
            yield layout.Break(self._style.owner)
            owner = self._markdown.mention(self._style.owner)
            # A job's turn begins later than its code.
            runs = [cell.finished for cell in log.cells if cell.finished is not None]
            seconds = max(log.end.seconds, *(run.seconds for run in runs), 0.0)
            is_done = log.end.status is values.TurnStatus.DONE
            # A turn is done although its code ended with an error.
            outcome = runs[-1].ending if is_done and runs else log.end.status
            describe = _JOB_ENDS.get(outcome, job_words.job_failed)
            yield f"{owner} **{describe(seconds)}**".lstrip()
        if log.end is None or last_words is None:
            parts = [part for entry in self._log.parts for part in self._draw_entry(entry)]
            last_tables: list[layout.Part] = []
            while log.end is not None and parts and isinstance(parts[-1], values.Table):
                # It is shown below the words of its message.
                last_tables.insert(0, parts.pop())
            yield from parts
            yield from self._draw_progress() if log.end is None else self._draw_end(log.end)
            yield from last_tables
            return
        yield from self._draw_words(last_words)
        yield from self._draw_end_sentence(log.end)
        other_entries = [
            entry
            for entry in self._log.parts
            if entry is not last_words and not self._is_omitted(entry)
        ]
        parts = []
        for entry in other_entries:
            if isinstance(entry, turn_log.StepText):
                parts.append(layout.Line(""))
            parts += self._draw_entry(entry)
        # Tables and files are shown below the words of a message.
        types_below = transport.Upload | values.Table
        yield from (part for part in parts if not isinstance(part, types_below))
        yield from self._draw_summary(log.end)
        yield from (part for part in parts if isinstance(part, values.Table))
        yield from (part for part in parts if isinstance(part, transport.Upload))

    def actions(self, *, has_page: bool) -> Iterator[str]:
        """Return the actions of the buttons below the answer, when it has ended."""
        end, style = self._log.end, self._style
        if end is None or not end.turn_id or self.is_brief:
            return
        omits_code = not (style.is_code or style.shows_code) or self._cuts_code
        if self._log.cells and (omits_code or end.queries):
            yield "code"
        yield from ("again", "notebook")
        if has_page:
            yield "page"
        is_done = end.status is values.TurnStatus.DONE
        if self._capabilities.has_feedback and is_done and not style.is_code:
            yield "feedback"

    @property
    def _cuts_code(self) -> bool:
        """Whether the answer shows only the beginning of some code."""
        codes = [cell.code.strip("\n") for cell in self._log.cells]
        return self._style.shows_code and any(_shown_code(code) != code for code in codes)

    @property
    def table_numbers(self) -> list[str]:
        """The numbers of tables that were shown in part and may be had as a whole."""
        handles = (
            output.handle
            for output in self._outputs()
            if isinstance(output, values.Table) and not output.is_whole
        )
        return [match[1] for handle in handles if (match := _TABLE_HANDLE.fullmatch(handle))]

    @property
    def is_brief(self) -> bool:
        """Whether a model answered in a line, and its code was short, went well and showed little.

        Nothing is shown below such an answer, not even buttons.
        """
        log, end = self._log, self._log.end
        if end is None or self._style.is_code or log.files or end.sentence or end.queries:
            return False
        outputs = [*self._outputs()]
        return (
            len(end.text) <= _MAX_BRIEF_CHARACTERS
            and "\n" not in end.text.strip()
            and all(isinstance(output, values.Text | values.Result) for output in outputs)
            and sum(output.plain.count("\n") + 1 for output in outputs) <= _MAX_BRIEF_LINES
            and sum(cell.code.count("\n") + 1 for cell in log.cells) <= _MAX_BRIEF_LINES
            and all(
                cell.finished is not None and cell.finished.ending is values.Ending.OK
                for cell in log.cells
            )
        )

    @property
    def _last_words(self) -> turn_log.StepText | None:
        """The model's words if the turn has ended with them."""
        return None if self._style.is_code or self._log.end is None else self._log.last_words

    @property
    def _omits_steps(self) -> bool:
        """Whether the final words stand alone, and a button shows the steps that led to them."""
        end = self._log.end
        is_shown = self._style.shows_code or self.is_brief or end is None or not end.turn_id
        return self._last_words is not None and not is_shown

    @property
    def _superseded_words(self) -> list[turn_log.Part]:
        """The answers that the model was asked to check, after which it answered again."""
        return [
            words
            for words, notice in itertools.pairwise(self._log.parts)
            if isinstance(notice, events.NoticeShown) and notice.text == model_words.ANSWER_CHECKED
        ]

    def _outputs(self) -> Iterator[output_screens.VisibleOutput]:
        return (item.output for cell in self._log.cells for item in cell.screen.items)

    def _draw_entry(self, entry: turn_log.Part) -> Iterator[layout.Part]:
        match entry:
            case turn_log.StepText() if entry.text.strip():
                yield from self._draw_words(entry)
            case turn_log.Cell() if self._log.end is not None or not self._is_streamed:
                for part in self._draw_cell(entry):
                    if isinstance(part, transport.Upload) and not self._capabilities.can_edit_files:
                        yield from self._draw_in_own_message(part)
                    else:
                        yield part
            case events.NoticeShown():
                yield self._markdown.small_print(f"🔹 {self._markdown.escape(entry.text)}")
            case turn_log.AskedQuestion():
                yield from self._draw_question(entry)

    def _draw_in_own_message(self, upload: transport.Upload) -> Iterator[layout.Part]:
        """Draw a file that needs a message of its own: a picture in its place, others at the end.

        While a model writes, pictures wait for the end, too, as its final words may replace those
        around them. Pictures that were drawn together stay in one message, which gets no others.
        """
        may_move = not self._style.is_code and self._log.end is None
        if may_move or not upload.is_picture:
            self._uploads_at_end.append(upload)
            return
        first_draw = self._first_draws_of_uploads.setdefault(upload.id, self._draw_count)
        if self._draw_of_last_upload not in (0, first_draw):
            yield layout.Break()
        self._draw_of_last_upload = first_draw
        yield upload

    def _is_omitted(self, entry: turn_log.Part) -> bool:
        """Return whether the final words stand without an entry."""
        if entry in self._superseded_words:
            return True
        end = self._log.end
        if not (self._omits_steps or (self.is_brief and end and end.turn_id)):
            return False
        return isinstance(entry, turn_log.StepText) and past_code.is_narration(entry.text)

    def _draw_words(self, entry: turn_log.StepText) -> Iterator[layout.Part]:
        """Draw the model's words; if they are very long, their beginning and, later, their end."""
        log, max_characters = self._log, self._capabilities.max_characters
        is_growing = entry is log.last_words and log.open_question is None
        is_whole = log.end is not None or not is_growing
        parts: list[_WordsPart] = []
        is_held_back = False
        for block in self._markdown.blocks(entry.text, is_whole=is_whole):
            if block.is_line:
                parts.append(layout.Line(block.text, may_grow=block.may_grow))
            elif not block.may_grow or len(block.text) > max_characters:
                parts += message_splitting.split_messages(block.text, max_characters)
            else:
                is_held_back = True
        total_characters = self._capabilities.max_messages * max_characters
        head, parts_left = _divide(parts, total_characters, max_characters)
        tail = _last_parts(parts_left, max_characters)
        missing_characters = sum(map(_length_of, parts_left)) - sum(map(_length_of, tail))
        if is_whole and not missing_characters:
            yield from parts
            return
        yield from head
        if not is_whole:
            if is_held_back or parts_left:
                yield self._status_part("✍️ writing …")
            return
        yield self._markdown.small_print(chat_words.left_in_file(missing_characters))
        part_number = 1 + log.parts.index(entry)
        data = entry.text.encode("utf-8", "replace")
        whole_answer = self._attach(f"answer-{part_number}.md", chat_words.WHOLE_ANSWER, data)
        if isinstance(whole_answer, transport.Upload) and not self._capabilities.can_edit_files:
            self._uploads_at_end.append(whole_answer)
        else:
            yield whole_answer
        yield from tail

    def _draw_progress(self) -> Iterator[layout.Part]:
        """Draw what is going on."""
        log, markdown = self._log, self._markdown
        if log.open_question is not None:
            return
        running_cell = next((cell for cell in reversed(log.cells) if cell.finished is None), None)
        if log.ahead is not None:
            yield self._status_part(f"⏳ {run_words.queued(log.ahead) or chat_words.ONE_MOMENT}")
        elif log.progress is not None:
            sentence = run_words.waiting_sentence(log.progress.text, log.progress.share)
            yield self._status_part(
                f"⏳ {markdown.escape(sentence)} ({markdown.time_since(log.activity_start)})"
            )
        elif log.draft:
            if not self._is_streamed:
                yield markdown.code(_tail(log.draft, _MAX_TAIL_LINES, _MAX_CODE_CHARACTERS), "py")
            yield self._status_part(f"✍️ {chat_words.WRITING_CODE}")
        elif running_cell is not None and self._style.is_job:
            if line := quantities.one_line(
                safe_text.sanitize(running_cell.last_line), _MAX_LAST_LINE_CHARACTERS
            ):
                yield markdown.inline_code(line)
            yield self._status_part(
                f"⏳ running … ({markdown.time_since(running_cell.started_at)})"
            )
        elif running_cell is not None:
            limit = quantities.duration(self._style.limit_seconds)
            yield self._status_part(
                f"⏳ running … ({markdown.time_since(running_cell.started_at)}, at most {limit})"
            )
        elif log.last_words is None:
            thinking_text = f"⏳ thinking … ({markdown.time_since(log.activity_start)})"
            yield self._status_part(
                thinking_text if log.has_started else f"⏳ {chat_words.ONE_MOMENT}"
            )

    def _status_part(self, text: str) -> layout.Status:
        return layout.Status(self._markdown.small_print(text))

    def _draw_end(self, end: events.TurnEnded) -> Iterator[layout.Part]:
        yield from self._draw_end_sentence(end)
        yield from self._draw_summary(end)

    def _draw_end_sentence(self, end: events.TurnEnded) -> Iterator[layout.Part]:
        has_shown = bool(self._log.files) or any(True for _ in self._outputs())
        if end.sentence:
            emoji = "⏹️" if end.status is values.TurnStatus.STOPPED else "⚠️"
            yield f"{emoji} {self._markdown.escape(end.sentence)}"
        elif not (self._style.is_code or has_shown or self._has_words()):
            yield self._markdown.small_print("Done.")

    def _draw_summary(self, end: events.TurnEnded) -> Iterator[layout.Part]:
        cells = self._log.cells
        if cells and not (self._style.is_code or self.is_brief):
            facts = [quantities.count(len(cells), "run"), quantities.duration(end.seconds)]
            facts += [self._style.hint] if self._style.hint else []
            yield self._markdown.small_print(" · ".join(facts))

    def _has_words(self) -> bool:
        """Return whether text is left after conversion to the network's Markdown."""
        words = (part for part in self._log.parts if isinstance(part, turn_log.StepText))
        return any(
            block.text.strip() for entry in words for block in self._markdown.blocks(entry.text)
        )

    def _draw_cell(self, cell: turn_log.Cell) -> Iterator[layout.Part]:
        if self._style.shows_code:
            yield self._markdown.code(_shown_code(cell.code), "py")
        elif cell.finished is None:
            yield self._markdown.code(_tail(cell.code, _MAX_TAIL_LINES, _MAX_CODE_CHARACTERS), "py")
        if cell.finished is None and self._style.is_job:
            return
        items = self._select_items(cell)
        omits_steps = self._omits_steps
        for item in items:
            if not (omits_steps and past_code.is_omitted(item)):
                yield from self._draw_item(item)
        if cell.finished is not None:
            yield from self._draw_ending(cell.finished, items)

    def _select_items(self, cell: turn_log.Cell) -> tuple[display_items.Item, ...]:
        items = self._selected_items.get(cell.number)
        if items is not None:
            return items
        items = self._selector.choose(cell.number, cell.screen.items)
        if cell.finished is not None:
            self._selected_items[cell.number] = items
        return items

    def _draw_ending(
        self, finished: values.Finished, items: Sequence[display_items.Item]
    ) -> Iterator[layout.Part]:
        has_error = any(
            isinstance(item, display_items.CodeItem) and item.language == "traceback"
            for item in items
        )
        has_shown = bool(items or self._log.files) or not self._style.is_code
        sentence = run_words.ending_sentence(finished, has_shown=has_shown, has_error=has_error)
        if sentence == run_words.NO_OUTPUT:
            yield self._markdown.small_print(f"{_ENDING_EMOJI[finished.ending]} {sentence}")
        elif sentence:
            yield f"{_ENDING_EMOJI[finished.ending]} {self._markdown.escape(sentence)}"

    def _draw_question(self, entry: turn_log.AskedQuestion) -> Iterator[layout.Part]:
        question, markdown = entry.question, self._markdown
        if not entry.is_open:
            prompt = ""
            if isinstance(question, events.InputQuestion) and question.is_of_model:
                summary = questions.summary_sentence(question, entry.answer)
                yield markdown.small_print(
                    f"❓ {markdown.escape(quantities.one_line(summary, _MAX_PROMPT_CHARACTERS))}"
                )
                return
            if isinstance(question, events.InputQuestion):
                prompt = markdown.inline_code(question.prompt)
            yield markdown.small_print(f"{prompt} {_describe_answer(entry.answer)}".strip())
            return
        owner = markdown.mention(self._style.owner)
        if isinstance(question, events.ApprovalQuestion):
            code = [*self._draw_code_to_approve(question)]
            if not self._capabilities.can_edit_files:
                # The file comes before the message with the button that approves it.
                yield from (part for part in code if isinstance(part, transport.Upload))
                code = [part for part in code if not isinstance(part, transport.Upload)]
            yield layout.Break(self._style.owner)
            yield f"{owner} **{question_words.title(question.subject)}**".lstrip()
            yield from code
            yield from (markdown.escape(fact) for fact in question.facts.splitlines())
            return
        yield layout.Break(self._style.owner)
        if question.is_of_model:
            yield f"{owner} ❓ {markdown.escape(question.prompt)}".lstrip()
            hint = (
                question_words.CHOOSE_OR_REPLY
                if question.choices
                else question_words.REPLY_OR_BUTTON
            )
            yield markdown.small_print(hint)
            return
        yield f"{owner} ⌨️ **{question_words.code_asks('')}**".lstrip()
        if question.is_password:
            yield question_words.PASSWORD
        else:
            yield question_words.REPLY_OR_BUTTON
        yield markdown.code(_tail(question.prompt, 10, _MAX_PROMPT_CHARACTERS))

    def _draw_code_to_approve(self, question: events.ApprovalQuestion) -> Iterator[layout.Part]:
        """Draw all of the code, as it would run: people approve only what they can see."""
        revealed = safe_text.reveal_hidden(question.code)
        if revealed.warning:
            yield f"⚠️ {revealed.warning}"
        head = _head(revealed.text, 60, self._capabilities.max_characters * 4 // 5)
        block = self._markdown.code(head, "" if question.subject == "note" else "py")
        yield block
        if head != revealed.text.strip("\n") or head.strip() not in block:
            # It was cut, or has three backticks, which a block cannot show.
            upload = self._attach(
                "to-approve.py", question_words.WHOLE_CODE, revealed.text.encode()
            )
            self.hides_code = isinstance(upload, str)
            note = (
                chat_words.CODE_PARTLY_HIDDEN
                if self.hides_code
                else question_words.WHOLE_CODE_IN_FILE
            )
            yield self._markdown.small_print(note)
            yield upload

    def _draw_item(self, item: display_items.Item) -> Iterator[layout.Part]:
        match item:
            case display_items.TableItem() if self._capabilities.shows_table(item.table):
                if not item.table.is_whole:
                    yield self._markdown.small_print(
                        tables.describe_size(item.table, len(item.table.rows))
                    )
                yield item.table
            case display_items.TextItem() | display_items.TableItem():
                yield self._markdown.code(item.text)
            case display_items.CodeItem():
                yield self._markdown.code(item.text, _LANGUAGES.get(item.language, ""))
            case display_items.PictureItem():
                picture = self._attach(item.name, item.alt, item.data)
                if isinstance(picture, transport.Upload):
                    picture = dataclasses.replace(picture, is_picture=True)
                yield picture
            case display_items.FileItem():
                yield self._attach(item.name, item.about, item.data)
            case display_items.PageItem():
                yield self._attach(item.name, item.title, item.html)
            case display_items.NoteItem():
                yield self._markdown.small_print(f"🔹 {self._markdown.escape(item.text)}")


def _shown_code(code: str) -> str:
    return _head(code, _MAX_CODE_LINES, _MAX_CODE_CHARACTERS)


def _text_of(part: _WordsPart) -> str:
    return part if isinstance(part, str) else part.text


def _length_of(part: _WordsPart) -> int:
    return len(_text_of(part))


def _divide(
    parts: list[_WordsPart], total_characters: int, max_characters: int
) -> tuple[list[_WordsPart], list[_WordsPart]]:
    """Divide parts into those that fit and the rest; a line longer than `max_characters` is
    broken."""
    characters_left = total_characters
    for index, part in enumerate(parts):
        length = _length_of(part)
        if length > characters_left:
            parts_left = parts[index:]
            if isinstance(part, str) or length <= max_characters or characters_left < 1:
                return parts[:index], parts_left
            line_start = part.text[: characters_left + message_splitting.LOOK_AHEAD_CHARACTERS]
            break_index = message_splitting.find_break(line_start, characters_left, is_code=False)
            parts_left[0] = dataclasses.replace(part, text=part.text[break_index:])
            return [*parts[:index], layout.Line(part.text[:break_index])], parts_left
        characters_left -= length
    return parts, []


def _last_parts(parts: list[_WordsPart], max_characters: int) -> list[_WordsPart]:
    """Return the last parts that fit into one message; if the last line does not, its end."""
    while parts and not _text_of(parts[-1]).strip():
        parts.pop()
    characters_left = max_characters * 4 // 5
    ends = itertools.accumulate(map(_length_of, reversed(parts)))
    count = sum(end <= characters_left for end in ends)
    if count or not parts:
        return parts[len(parts) - count :]
    last_part = parts[-1]
    if isinstance(last_part, str) or len(last_part.text) <= max_characters:
        return [last_part]
    text = last_part.text
    break_limit = len(text) - characters_left
    break_index = message_splitting.find_break(text, break_limit, is_code=False)
    if len(text) - break_index > max_characters:
        # The last space is far away.
        break_index = message_splitting.grapheme_floor(text, break_limit)
    return [dataclasses.replace(last_part, text=text[break_index:].lstrip())]


def _tail(text: str, lines: int, characters: int) -> str:
    text = text.strip("\n")
    excerpt = "\n".join(text.split("\n")[-lines:])[-characters:]
    return excerpt if len(excerpt) == len(text) else f"…\n{excerpt}"


def _head(text: str, lines: int, characters: int) -> str:
    text = text.strip("\n")
    excerpt = "\n".join(text.split("\n")[:lines])[:characters]
    return excerpt if len(excerpt) == len(text) else f"{excerpt}\n…"


def _describe_answer(answer: events.Answer | None) -> str:
    emoji = {events.Declined: "🚫 ", events.Approved: "✔️ "}.get(type(answer), "")
    return f"{emoji}{questions.outcome_sentence(answer)}"
