"""`interpreter-bot ask`: take turns with a language model in one session, in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import pathlib
import sys
import uuid
from collections.abc import AsyncIterator, Sequence

from interpreter_bot import errors, settings, values
from interpreter_bot.app import service_startup
from interpreter_bot.commands import console_runs
from interpreter_bot.platforms import login_pages
from interpreter_bot.platforms.console import (
    json_replies,
    saved_files,
    terminal_input,
    terminal_pictures,
    terminal_replies,
    threaded_stdout,
)
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.sessions import ports, requests, session_service

_NAME = "you"
_CODE = "/py"
_VARIABLES = "/variables"
_TOOLS = "/tools"
_NETWORK = "/network"
_CONNECT = "/connect"
_DISCONNECT = "/disconnect"
_LISTS = frozenset({_VARIABLES, _TOOLS, _NETWORK, _CONNECT, _DISCONNECT})
_PERSON = requests.Person(_NAME)


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run one turn for each prompt; 0 if every one was answered, else 1.

    Raises:
        BotError: no turn was run.
    """
    console_runs.check_files(options.file)
    prompts: list[str] = options.prompt
    is_question = "-" in prompts or not (prompts or terminal_input.is_possible())
    piped = None
    if is_question:
        question = terminal_input.text(most_characters=config.sessions.message_characters)
        prompts = [question if one == "-" else one for one in prompts or ["-"]]
    elif prompts:
        piped = terminal_input.opened()
    attachments = _attachments(options.file, piped)
    keeper = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=is_question or piped is not None)
    writer = threaded_stdout.StdoutWriter()
    out, err = writer.file(sys.stdout), writer.file(sys.stderr)
    choice = "none" if options.json else options.pictures
    pictures = terminal_pictures.found(choice, os.environ, sys.stdout)
    turns = itertools.count()

    def new_reply() -> ports.Reply:
        if options.json:
            return json_replies.TurnJsonLines(keeper, answers, out=out, turn=next(turns))
        printer = terminal_replies.TurnPrinter(keeper, answers, out=out, err=err, pictures=pictures)
        printer.shows_queries = options.queries
        return printer

    async def work(interrupter: console_runs.Interrupter) -> int:
        is_answered = True
        async with contextlib.AsyncExitStack() as stack:
            opening = service_startup.open_conversations(
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
            async for prompt in _asked(prompts, writer, service, key):
                if not prompts and prompt.partition(" ")[0].strip() in _LISTS:
                    out.write(await _listed(service, key, prompt.strip()))
                    out.flush()
                    continue
                interrupter.stop_by(functools.partial(service.stop, key))
                request = _request(key, prompt, options, tuple(attachments))
                end = await service.handle(request, new_reply())
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


async def _asked(
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


async def _listed(
    service: session_service.SessionService, key: values.SessionKey, line: str
) -> str:
    command, _, name = line.partition(" ")
    match command:
        case "/connect":
            try:
                return f"{await service.logins.link(key, _PERSON, name.strip())}\n"
            except errors.BotError as error:
                return f"{error}\n"
        case "/disconnect":
            return f"{await service.logins.forget(key, _PERSON.id, name.strip())}\n"
        case "/tools":
            facts = session_facts.tools(await service.queries.tools(key, _PERSON))
        case "/network":
            facts = session_facts.network(service.queries.reach(key))
        case _:
            facts = session_facts.variables(await service.queries.variables(key))
    return "".join(f"{fact.label}: {fact.value}\n" for fact in facts)


def _request(
    key: values.SessionKey,
    prompt: str,
    options: argparse.Namespace,
    attachments: tuple[requests.Attachment, ...],
) -> requests.Request:
    command, _, code = prompt.lstrip().partition(" ")
    is_code = not options.prompt and command == _CODE and bool(code.strip())
    return requests.Request(
        key=key,
        person=_PERSON,
        text=code if is_code else prompt,
        is_code=is_code,
        attachments=attachments,
        model=options.model,
        approval=options.approval,
    )
