"""`interpreter-bot ask`: take turns with a language model in one session, in the terminal."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import uuid
from collections.abc import AsyncIterator

from interpreter_bot import settings, values
from interpreter_bot.app import conversing
from interpreter_bot.commands import terminals
from interpreter_bot.platforms.console import (
    answering,
    chat_input,
    keeping,
    piped_input,
    turns,
    writing,
)
from interpreter_bot.sessions import ports, requests

_NAME = "you"
_CODE = "/py"


def run(bot: settings.Settings, options: argparse.Namespace) -> int:
    """Take one turn for each prompt; 0 if every one was answered, else 1.

    Raises:
        BotError: nothing was asked.
    """
    terminals.check_files(options.file)
    prompts: list[str] = options.prompt
    is_question = "-" in prompts or not (prompts or chat_input.is_possible())
    piped = None
    if is_question:
        question = piped_input.text(most_characters=bot.sessions.message_characters)
        prompts = [question if one == "-" else one for one in prompts or ["-"]]
    elif prompts:
        piped = piped_input.opened()
    attachments = [
        requests.Attachment(path.name, functools.partial(terminals.chunks, path))
        for path in options.file
    ]
    if piped is not None:
        attachments.append(requests.Attachment(piped.name, piped.chunks))
    keeper = keeping.Keeper(options.keep) if options.keep is not None else None
    answers = answering.Answers(is_script=is_question or piped is not None)
    writer = writing.Writer()
    out = writer.file(sys.stdout)
    reply: turns.Lines | turns.Printer
    if options.json:
        reply = turns.Lines(keeper, answers, out=out)
    else:
        reply = turns.Printer(keeper, answers, out=out, err=writer.file(sys.stderr))

    async def asked() -> AsyncIterator[str]:
        if prompts:
            for prompt in prompts:
                yield prompt
            return
        async for line in chat_input.lines(writer):
            yield line

    async def work(interruption: terminals.Interruption) -> int:
        is_answered = True
        async with conversing.opened(bot.for_one_session(), os.environ, is_ephemeral=True) as held:
            if options.model:
                held.check_model(options.model)
            key = values.SessionKey("console", thread=uuid.uuid4().hex)
            async for prompt in asked():
                interruption.stop_by(functools.partial(held.stop, key))
                request = _request(key, prompt, options, tuple(attachments))
                end = await held.handle(request, reply)
                is_answered = is_answered and end.status is ports.Status.DONE
                # Files come with the first question; they stay for the others.
                attachments.clear()
        # What was not answered in a chat was seen, and asked again where it mattered.
        return 0 if is_answered or not prompts else terminals.FAILED

    return terminals.run(work, writer, keeper)


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
