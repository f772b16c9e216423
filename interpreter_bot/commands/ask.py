"""`interpreter-bot ask`: take turns with a language model in one session, in the terminal."""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Final

from interpreter_bot import settings
from interpreter_bot.app import bot_startup
from interpreter_bot.commands import console_runs, exit_statuses
from interpreter_bot.platforms.console import (
    code_sources,
    json_replies,
    question_tasks,
    saved_files,
    terminal_input,
    terminal_pictures,
    terminal_replies,
    threaded_output,
)
from interpreter_bot.sessions import requests

_STDIN: Final = pathlib.Path("-")


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run a turn for each prompt, or a chat without prompts; return the exit status.

    Raises:
        BotError: no turn was run.
    """
    files = [path for path in options.file if path != _STDIN]
    console_runs.require_files(files)
    prompts: list[str] = options.prompt
    is_stdin_a_question = "-" in prompts or not (prompts or terminal_input.is_interactive())
    piped_file, question = None, ""
    if is_stdin_a_question:
        question = terminal_input.read_question(max_characters=requests.MAX_CHARACTERS)
        prompts = prompts or ["-"]
    elif _STDIN in options.file or (prompts and _is_stdin_a_file(options)):
        piped_file = terminal_input.wait_for_piped_file()
    attachments = _make_attachments(files, piped_file)
    saver = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=is_stdin_a_question or piped_file is not None)
    writer = threaded_output.OutputWriter()
    stdout, stderr = writer.file(sys.stdout), writer.file(sys.stderr)
    json_answers = json_replies.JsonAnswers(answers)
    pictures = terminal_pictures.choose_protocol(
        "none" if options.json else options.pictures, os.environ, sys.stdout
    )
    turn_numbers = itertools.count()

    def new_reply(
        take_answer: question_tasks.TakeAnswer,
    ) -> json_replies.JsonLines | terminal_replies.TurnPrinter:
        if options.json:
            return json_replies.JsonLines(
                saver, json_answers, take_answer, out=stdout, turn=next(turn_numbers)
            )
        printer = terminal_replies.TurnPrinter(
            saver,
            answers,
            take_answer,
            out=stdout,
            err=stderr,
            pictures=pictures,
            command="ask",
            limit_seconds=config.limits.execution_seconds,
        )
        printer.shows_queries = options.queries
        return printer

    async def work(interrupter: console_runs.Interrupter) -> int:
        service_context = bot_startup.open_service(
            config.for_one_session(), os.environ, is_ephemeral=True
        )
        async with service_context as service:
            # Imported late, because `open_service` imports most of it in the background.
            from interpreter_bot.commands import ask_turns

            new_turn_reply = functools.partial(new_reply, service.questions.answer)
            turns = ask_turns.Turns(service, options, writer, interrupter, new_turn_reply)
            is_answered = await turns.run_all(prompts, question, attachments)
        # In a chat, the person sees what fails, and the command itself has not failed.
        return 0 if is_answered or not prompts else exit_statuses.FAILED

    return console_runs.run(work, writer, saver)


def _make_attachments(
    files: Sequence[pathlib.Path], piped_file: terminal_input.PipedFile | None
) -> list[requests.Attachment]:
    attachments = [code_sources.make_attachment(path) for path in files]
    if piped_file is not None:
        attachments.append(requests.Attachment(piped_file.name, piped_file.read_chunks))
    return attachments


def _is_stdin_a_file(options: argparse.Namespace) -> bool:
    """Return whether standard input is a file for the session; with --json, a pipe has answers."""
    return not options.json or terminal_input.is_regular_file()
