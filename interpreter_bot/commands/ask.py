"""`interpreter-bot ask`: take turns with a language model in one session, in the terminal."""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
import uuid

from interpreter_bot import settings, values
from interpreter_bot.app import conversing
from interpreter_bot.commands import parsers, terminals
from interpreter_bot.platforms.console import answering, keeping, turns, writing
from interpreter_bot.sessions import ports, requests

_NAME = "you"


def add_to(commands: parsers.Commands) -> argparse.ArgumentParser:
    """Add the command's parser."""
    parser = commands.add_parser("ask", help="ask a question that is answered by running code")
    parser.epilog = (
        "Several prompts are several turns of one session. Exit status: 0 if every turn was "
        "answered and everything was kept that --keep asks for; 1 if not; 2 if nothing was asked."
    )
    parser.add_argument("prompt", nargs="+", metavar="PROMPT", help="what you want to know")
    parser.add_argument(
        "--model", default="", metavar="M", help="one of the models of the settings"
    )
    terminals.add_options(parser)
    return parser


def run(bot: settings.Settings, options: argparse.Namespace) -> int:
    """Take one turn for each prompt; 0 if every one was answered, else 1.

    Raises:
        BotError: nothing was asked.
    """
    terminals.check_files(options.file)
    keeper = keeping.Keeper(options.keep) if options.keep is not None else None
    answers = answering.Answers(is_script=False)
    writer = writing.Writer()
    out = writer.file(sys.stdout)
    reply: turns.Lines | turns.Printer
    if options.json:
        reply = turns.Lines(keeper, answers, out=out)
    else:
        reply = turns.Printer(keeper, answers, out=out, err=writer.file(sys.stderr))

    async def work(interruption: terminals.Interruption) -> int:
        one = bot.for_one_session()
        async with conversing.opened(one, os.environ, is_ephemeral=True) as held:
            if options.model:
                held.check_model(options.model)
            key = values.SessionKey("console", thread=uuid.uuid4().hex)
            interruption.stop_it = functools.partial(held.stop, key)
            ends = [
                await held.handle(_request(key, prompt, options, number), reply)
                for number, prompt in enumerate(options.prompt)
            ]
        return 0 if all(end.status is ports.Status.DONE for end in ends) else terminals.FAILED

    return terminals.run(work, writer, keeper)


def _request(
    key: values.SessionKey, prompt: str, options: argparse.Namespace, number: int
) -> requests.Request:
    # Files come with the first question; they stay for the others.
    paths: list[pathlib.Path] = [] if number else options.file
    attachments = tuple(
        requests.Attachment(path.name, functools.partial(terminals.chunks, path)) for path in paths
    )
    return requests.Request(
        key=key,
        person=requests.Person(_NAME),
        text=prompt,
        attachments=attachments,
        model=options.model,
    )
