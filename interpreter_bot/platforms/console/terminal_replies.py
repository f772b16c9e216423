"""Executions and turns on a terminal, for people."""

from __future__ import annotations

import functools
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Final, TextIO

from interpreter_bot import events, values
from interpreter_bot.platforms.console import (
    question_tasks,
    saved_files,
    terminal_input,
    terminal_output,
    terminal_pictures,
)
from interpreter_bot.platforms.rendering import query_listings, tables
from interpreter_bot.sessions import ports
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import question_words, terminal_words

_MAX_ROWS: Final = 20
_MIN_ELAPSED_SECONDS: Final = 2.0

_RED: Final = "31"
_BOLD_RED: Final = "1;31"
_YELLOW: Final = "33"
_DIM: Final = "2"


def draw_table(table: values.Table, max_width: int | None = None) -> str:
    """Draw the head of a table, no wider than the terminal if its width is known."""
    return tables.draw_table(table, max_width, max_rows=_MAX_ROWS)


def _save(save: Callable[[], pathlib.Path]) -> str:
    """Save a file; return a text with its path, or why saving failed."""
    try:
        return f"saved as {save()}"
    except saved_files.SavingError as error:
        return str(error)


class ExecutionPrinter(ports.Reply):
    """Prints the output of runs of code.

    Output of cells goes to standard output, lines of the bot to standard error.
    """

    def __init__(
        self,
        saver: saved_files.SavedFiles | None,
        answers: terminal_input.StdinAnswers,
        take_answer: question_tasks.TakeAnswer,
        *,
        out: TextIO,
        err: TextIO,
        pictures: terminal_pictures.Protocol = "",
        command: str = "exec",
        limit_seconds: float | None = None,
    ) -> None:
        """Make a printer.

        Args:
            saver: saves displays and files; None to save nothing.
            answers: where the answers to questions are read.
            take_answer: accepts the answers.
            out: standard output.
            err: standard error.
            pictures: how standard output shows them; empty if it does not.
            command: the command that the person called, for hints.
            limit_seconds: how long a piece of code may run.
        """
        self._saver = saver
        self._answers = answers
        self._questions = question_tasks.QuestionTasks(take_answer)
        self._stdout = terminal_output.Stream(out)
        self._err = terminal_output.Stream(err)
        self._pictures = pictures
        self._command = command
        self._limit_seconds = limit_seconds
        self._has_shown_keep_hint = False
        self._approved_code = ""
        self._bar = ""
        self._set_activity("Running", has_limit=True)

    @property
    def _out(self) -> terminal_output.Stream:
        """Standard output, after removing the status line from the terminal."""
        self._err.show_status("")
        return self._stdout

    def _set_activity(self, activity: str, *, has_limit: bool = False) -> None:
        """Set the present activity, which `tick` shows unless it is empty."""
        self._activity = activity
        self._activity_start = time.monotonic()
        self._limit = self._limit_seconds if has_limit else None

    def tick(self) -> None:
        """Show on a terminal how long the activity takes, and its limit."""
        seconds = time.monotonic() - self._activity_start
        is_line_open = self._stdout.is_terminal and self._stdout.is_line_open
        if not self._activity or seconds < _MIN_ELAPSED_SECONDS or is_line_open:
            return
        limit = "" if self._limit is None else f" of at most {quantities.duration(self._limit)}"
        elapsed = f"{self._activity}… {quantities.duration(int(seconds))}{limit}"
        self._err.show_status(f"{self._bar} {elapsed}".strip())

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.NoticeShown(text=text, is_copy_missing=is_copy_missing):
                self._print_line(text, style=_YELLOW)
                if is_copy_missing and self._saver is not None:
                    self._saver.has_failed = True
            case events.OutputShown(cell=cell, output=output):
                self._print_output(cell, output)
            case events.FileMade(artifact=artifact, copy=copy):
                self._print_file(artifact, copy)
            case events.QuestionAsked(question=question):
                self._ask(question)
            case events.QuestionClosed(question=question, answer=answer):
                self._questions.end()
                if isinstance(answer, events.Approved) and isinstance(
                    question, events.ApprovalQuestion
                ):
                    self._approved_code = question.code
                self._set_activity("Running", has_limit=True)
            case events.CodeFinished(finished=finished):
                # Without a reason, the outputs show how the code ended.
                self._out.flush()
                self._err.flush()
                if finished.reason:
                    self._print_line(
                        f"[{finished.ending.value}] {finished.reason}", style=_BOLD_RED
                    )
                self._set_activity("Running", has_limit=True)

    def _print_output(self, cell: int, output: values.Output) -> None:
        """Print an output in the best form that a terminal has for it."""
        match output:
            case values.Text():
                stream = self._err if output.stream == "stderr" else self._out
                stream.write_text(output.text)
            case values.Error():
                self._out.write_line(output.traceback, style=_RED)
            case values.Image() | values.Html():
                self._display(cell, output)
            case values.Table():
                self._out.write_line(draw_table(output, self._width()))
            case values.Notice():
                self._print_line(output.text, style=_YELLOW)
            case values.Json():
                self._out.write_line(output.json)
            case values.Latex():
                self._out.write_line(output.plain or output.latex)
            case values.Result():
                self._out.write_line(output.plain)
            case values.Clear():
                # Output may have scrolled away, so nothing is cleared.
                pass

    def _width(self) -> int | None:
        """Return the width of the terminal; files and pipes have none."""
        return shutil.get_terminal_size().columns if self._stdout.is_terminal else None

    def _display(self, cell: int, output: values.Image | values.Html) -> None:
        if self._pictures:
            self._out.write_escapes(
                terminal_pictures.draw_picture(output, self._pictures, columns=self._width() or 80)
            )
        label = output.plain or ("a page" if isinstance(output, values.Html) else output.mime)
        if self._saver is None:
            self._print_line(f"[{label}]", style=_DIM)
            self._show_keep_hint()
            return
        saving = _save(functools.partial(self._saver.save_display, cell, output))
        self._print_line(f"[{label}: {saving}]", style=_DIM)

    def _show_keep_hint(self) -> None:
        if not self._has_shown_keep_hint:
            self._has_shown_keep_hint = True
            hint = terminal_words.how_to_keep(self._command)
            self._print_line(hint, style=_DIM)

    def _print_line(self, text: str, *, style: str) -> None:
        """Print a line of the bot, after what the cell has printed so far."""
        if self._stdout.is_terminal and self._err.is_terminal:
            self._out.close_line()
        else:
            self._out.flush()
        self._err.write_line(safe_text.sanitize(text), style=style)

    def _ask(self, question: events.Question) -> None:
        """Print a question, and begin to read the answer."""
        self._set_activity("")
        if isinstance(question, events.ApprovalQuestion):
            self._print_approval(question)
            self._questions.begin(question, lambda: self._read_approval(question))
        else:
            self._print_choices(question)
            self._out.write_prompt(question.prompt if not question.is_of_model else "> ")
            self._questions.begin(question, lambda: self._read_input(question))

    def _print_choices(self, question: events.InputQuestion) -> None:
        """Print what the model asks, with a number before each choice."""
        if question.is_of_model:
            self._out.close_line()
            self._print_line(question.prompt, style=_YELLOW)
            for number, choice in enumerate(question.choices, start=1):
                self._print_line(f"{number}. {choice}", style=_YELLOW)

    async def _read_input(self, question: events.InputQuestion) -> events.Answer:
        try:
            return events.TextAnswer(
                await self._answers.read_answer(is_password=question.is_password)
            )
        except terminal_input.NoAnswerError:
            if question.is_of_model:
                return events.Unanswered(question_words.NOBODY_ANSWERS)
            return events.TextAnswer(values.END_OF_INPUT)

    @property
    def spool(self) -> pathlib.Path | None:
        return None if self._saver is None else self._saver.directory

    def _print_file(self, artifact: values.Artifact, copy: pathlib.Path | None) -> None:
        facts = [f"file {artifact.name}", quantities.size(artifact.size_bytes)]
        if self._saver is not None and copy is not None:
            facts.append(_save(functools.partial(self._saver.save_file, artifact.name, copy)))
        self._print_line(f"[{', '.join(facts)}]", style=_DIM)
        if self._saver is None:
            self._show_keep_hint()

    def _print_approval(self, question: events.ApprovalQuestion) -> None:
        self._out.close_line()
        revealed_code = safe_text.reveal_hidden(question.code)
        self._print_code(revealed_code.text, "Python" if question.can_edit else question.subject)
        if revealed_code.warning:
            self._print_line(revealed_code.warning, style=_BOLD_RED)
        self._answers.discard_typed_input()
        title = question_words.title(question.subject)
        self._err.write_prompt(f"{title} [{'/'.join(['y', *question.choices, 'N'])}] ")

    async def _read_approval(self, question: events.ApprovalQuestion) -> events.Answer:
        """Read an answer; if nobody can answer, the code is declined."""
        answer = await self._answers.read_approval(question.choices)
        if isinstance(answer, events.Declined) and self._answers.has_ended:
            if not question.can_edit:
                raise terminal_input.NoAnswerError(terminal_words.NO_INPUT)
            self._print_line(terminal_words.NOBODY_TO_ASK, style=_BOLD_RED)
        return answer

    def _print_code(self, code: str, kind: str = "Python") -> None:
        """Print code so that a copy of its lines runs."""
        self._print_line(f"── {kind}", style=_DIM)
        self._print_line(code.rstrip("\n"), style=_DIM)
        self._print_line("──", style=_DIM)


class TurnPrinter(ExecutionPrinter):
    """Prints one turn: the model's words to standard output, its code to standard error."""

    _usage = values.Usage()
    _last_progress = ""
    shows_queries = False
    """Whether the queries to data connections are printed below the answer."""

    def show_text(self, text: str) -> None:
        """Print the answer of a command."""
        self._out.write_line(safe_text.sanitize(text))

    def show_refusal(self, sentence: str) -> None:
        """Print why a command was refused."""
        self._print_line(sentence, style=_BOLD_RED)

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.Started():
                self._set_activity("Starting")
            case events.StepStarted():
                self._out.close_line()
                self._set_activity("Thinking")
            case events.ProgressChanged(text=text, share=share):
                # The text is printed once; a terminal shows a progress bar below it.
                if text and text != self._last_progress:
                    self._print_line(text, style=_DIM)
                    self._set_activity("Waiting")
                self._last_progress = text
                self._bar = "" if share is None else terminal_output.draw_bar(share)
                self._err.show_status(self._bar)
            case events.TextAdded(text=text):
                self._out.write_text(safe_text.sanitize(text))
            case events.PrivateNotice(text=text):
                # Nobody else is at this terminal.
                self._print_line(text, style=_YELLOW)
            case events.CodeStarted(code=code):
                self._out.close_line()
                if code != self._approved_code:
                    self._print_code(code)
                self._approved_code = ""
                self._set_activity("Running", has_limit=True)
            case events.UsageChanged(usage=usage):
                self._usage = usage
            case events.TurnEnded():
                self._print_end(event)
            case events.CodeFinished():
                super()._show(event)
                self._set_activity("Finishing")
            case _:
                super()._show(event)

    def _print_end(self, end: events.TurnEnded) -> None:
        """Print how the turn ended, and its usage."""
        self._set_activity("")
        self._out.close_line()
        if end.sentence:
            self._print_line(end.sentence, style=_BOLD_RED)
        if self.shows_queries and end.queries:
            self._print_line(query_listings.write_script(end.queries), style=_DIM)
        usage = self._usage
        if usage.steps:
            tokens = usage.input_tokens + usage.output_tokens
            money = f", cost {usage.money.normalize():f}" if usage.money else ""
            cached = f" ({usage.cached_tokens:,} from cache)" if usage.cached_tokens else ""
            duration = quantities.duration(end.seconds)
            steps = quantities.count(usage.steps, "step")
            self._print_line(f"[{steps}, {tokens:,} tokens{cached}{money}, {duration}]", style=_DIM)
