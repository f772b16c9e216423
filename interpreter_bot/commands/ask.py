"""`interpreter-bot ask`: take turns with a language model in one session, in the terminal."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import uuid
from collections.abc import AsyncIterator

from interpreter_bot import settings, values
from interpreter_bot.app import conversation_service
from interpreter_bot.commands import terminal_runs
from interpreter_bot.platforms.console import (
    saved_files,
    stdout_writer,
    terminal_input,
    terminal_output,
)
from interpreter_bot.sessions import requests

_NAME = "you"
_CODE = "/py"


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run one turn for each prompt; 0 if every one was answered, else 1.

    Raises:
        BotError: no turn was run.
    """
    terminal_runs.check_files(options.file)
    prompts: list[str] = options.prompt
    is_question = "-" in prompts or not (prompts or terminal_input.is_possible())
    piped = None
    if is_question:
        question = terminal_input.text(most_characters=config.sessions.message_characters)
        prompts = [question if one == "-" else one for one in prompts or ["-"]]
    elif prompts:
        piped = terminal_input.opened()
    attachments = [
        requests.Attachment(path.name, functools.partial(terminal_runs.chunks, path))
        for path in options.file
    ]
    if piped is not None:
        attachments.append(requests.Attachment(piped.name, piped.chunks))
    keeper = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=is_question or piped is not None)
    writer = stdout_writer.StdoutWriter()
    out = writer.file(sys.stdout)
    reply: terminal_output.TurnJsonLines | terminal_output.TurnPrinter
    if options.json:
        reply = terminal_output.TurnJsonLines(keeper, answers, out=out)
    else:
        reply = terminal_output.TurnPrinter(keeper, answers, out=out, err=writer.file(sys.stderr))

    async def asked() -> AsyncIterator[str]:
        if prompts:
            for prompt in prompts:
                yield prompt
            return
        async for line in terminal_input.lines(writer):
            yield line

    async def work(interrupter: terminal_runs.Interrupter) -> int:
        is_answered = True
        async with conversation_service.open_conversations(
            config.for_one_session(), os.environ, is_ephemeral=True
        ) as service:
            if options.model:
                service.queries.check_model(options.model)
            key = values.SessionKey("console", thread=uuid.uuid4().hex)
            async for prompt in asked():
                interrupter.stop_by(functools.partial(service.stop, key))
                request = _request(key, prompt, options, tuple(attachments))
                end = await service.handle(request, reply)
                is_answered = is_answered and end.status is values.TurnStatus.DONE
                # Files come with the first question; they stay for the others.
                attachments.clear()
        # In a chat, the person saw an unanswered question, and could ask again.
        return 0 if is_answered or not prompts else terminal_runs.FAILED

    return terminal_runs.run(work, writer, keeper)


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
        person=requests.Person(_NAME),
        text=code if is_code else prompt,
        is_code=is_code,
        attachments=attachments,
        model=options.model,
        approval=options.approval,
    )
