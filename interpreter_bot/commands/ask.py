"""`interpreter-bot ask`: take turns with a language model in one session, in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import itertools
import os
import pathlib
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.app import bot_startup
from interpreter_bot.commands import console_runs
from interpreter_bot.platforms import command_table, login_pages
from interpreter_bot.platforms.console import (
    json_replies,
    saved_files,
    terminal_input,
    terminal_pictures,
    terminal_replies,
    threaded_stdout,
)
from interpreter_bot.sessions import requests, session_service

_PERSON: Final = requests.Person("you")
_SCOPE: Final = values.Scope("console", person=_PERSON.id)
_STDIN: Final = pathlib.Path("-")


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run one turn for each prompt; 0 if every one was answered, else 1.

    Raises:
        BotError: no turn was run.
    """
    files = [path for path in options.file if path != _STDIN]
    console_runs.check_files(files)
    prompts: list[str] = options.prompt
    is_question = "-" in prompts or not (prompts or terminal_input.is_interactive())
    piped, question = None, ""
    if is_question:
        question = terminal_input.read_question(most_characters=config.sessions.message_characters)
        prompts = prompts or ["-"]
    elif _STDIN in options.file or (prompts and _is_data(options)):
        piped = terminal_input.piped_file()
    attachments = _attachments(files, piped)
    keeper = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=is_question or piped is not None)
    writer = threaded_stdout.StdoutWriter()
    out, err = writer.file(sys.stdout), writer.file(sys.stderr)
    json_answers = json_replies.JsonAnswers(answers)
    pictures = terminal_pictures.found(
        "none" if options.json else options.pictures, os.environ, sys.stdout
    )
    turns = itertools.count()

    def new_reply() -> json_replies.TurnJsonLines | terminal_replies.TurnPrinter:
        if options.json:
            return json_replies.TurnJsonLines(keeper, json_answers, out=out, turn=next(turns))
        printer = terminal_replies.TurnPrinter(
            keeper,
            answers,
            out=out,
            err=err,
            pictures=pictures,
            command="ask",
            limit_seconds=config.limits.execution_seconds,
        )
        printer.shows_queries = options.queries
        return printer

    async def work(interrupter: console_runs.Interrupter) -> int:
        is_answered = True
        async with contextlib.AsyncExitStack() as stack:
            opening = bot_startup.open_service(
                config.for_one_session(), os.environ, is_ephemeral=True
            )
            service = await stack.enter_async_context(opening)
            if service.logins.are_possible:
                # At a port of its own: the page of a bot that runs knows nothing of these.
                pages = login_pages.serve(service, settings.ToolLogins(port=0))
                await stack.enter_async_context(pages)
            if options.model:
                service.queries.check_model(options.model)
            key = values.SessionKey("console", thread=uuid.uuid4().hex)
            place = command_table.Place(
                service, key, _PERSON, _SCOPE, options.approval, when=_local_time
            )
            async for prompt in _prompts(prompts, writer, service, key):
                reply = new_reply()
                try:
                    invocation = _invocation(prompt, is_typed=not prompts)
                    if invocation is not None and invocation.command.name == "exit":
                        break
                    code = await _code(invocation, place)
                    if invocation is not None and code is None:
                        reply.tell(await _answer(invocation, place))
                        continue
                except errors.BotError as error:
                    reply.refuse(str(error))
                    is_answered = False
                    continue
                interrupter.stop_by(functools.partial(service.stop, key))
                text = question if is_question and prompt == "-" else prompt
                request = requests.Request(
                    key=key,
                    person=_PERSON,
                    text=text if code is None else code,
                    is_code=code is not None,
                    attachments=tuple(attachments),
                    model=options.model,
                    approval=options.approval,
                )
                async with console_runs.ticking(reply.tick):
                    end = await service.handle(request, reply)
                is_answered = is_answered and end.status is values.TurnStatus.DONE
                # Files come with the first question; they stay for the others.
                attachments.clear()
        # In a chat, the person saw an unanswered question, and could ask again.
        return 0 if is_answered or not prompts else console_runs.FAILED

    return console_runs.run(work, writer, keeper)


def _attachments(
    files: Sequence[pathlib.Path], piped: terminal_input.Piped | None
) -> list[requests.Attachment]:
    attachments = [
        requests.Attachment(path.name, functools.partial(console_runs.chunks, path))
        for path in files
    ]
    if piped is not None:
        attachments.append(requests.Attachment(piped.name, piped.chunks))
    return attachments


def _is_data(options: argparse.Namespace) -> bool:
    """Say whether standard input is data: with --json, a pipe brings answers."""
    return not options.json or terminal_input.is_file()


async def _prompts(
    prompts: Sequence[str],
    writer: threaded_stdout.StdoutWriter,
    service: session_service.SessionService,
    key: values.SessionKey,
) -> AsyncIterator[str]:
    """Iterate over the prompts, or where there are none, over what a person enters."""
    for prompt in prompts:
        yield prompt
    if not prompts:
        # Imported here: who asks one question does not wait for an editor of lines.
        from interpreter_bot.platforms.console import line_editor

        complete = functools.partial(_completions, service, key)
        async for line in line_editor.lines(writer, complete):
            yield line


async def _completions(
    service: session_service.SessionService, key: values.SessionKey, code: str
) -> list[tuple[str, int, str]]:
    try:
        found = await service.queries.completions(key, code)
    except errors.BotError:
        return []  # No Python, or it is busy.
    return [(word, found.typed, about) for word, _, about in found.options]


def _invocation(prompt: str, *, is_typed: bool) -> command_table.Invocation | None:
    """Parse a command; an argument that is more than the name of one is a question.

    Raises:
        BotError: it was mistyped, or lacks its argument.
    """
    # Scripts put text of others into arguments: no such text runs as code.
    if is_typed or prompt.removeprefix("/") in command_table.offered("console"):
        return command_table.parse(prompt, "console")
    return None


def _local_time(moment: float) -> str:
    return f"{datetime.datetime.fromtimestamp(moment).astimezone():%-d %B at %H:%M}"


async def _code(
    invocation: command_table.Invocation | None, place: command_table.Place
) -> str | None:
    """Return the code that a command runs as a turn; None if it runs none."""
    match invocation and invocation.command.name:
        case "py":
            return invocation.argument if invocation else None
        case "again":
            return "\n\n".join(await place.service.branches.lost_cells(place.key))
    return None


async def _answer(invocation: command_table.Invocation, place: command_table.Place) -> str:
    answer = await command_table.run(invocation, place)
    if isinstance(answer, str):
        return answer
    width = max(len(fact.label) for fact in answer)
    return "\n".join(f"{fact.label:{width}}  {fact.value}".rstrip() for fact in answer)
