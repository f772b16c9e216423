"""`interpreter-bot exec`: run cells in one sandboxed session."""

from __future__ import annotations

import argparse
import os
import sys
import uuid

from interpreter_bot import settings
from interpreter_bot.app import host_startup
from interpreter_bot.commands import interrupt_signals
from interpreter_bot.platforms.console import (
    code_sources,
    json_replies,
    saved_files,
    terminal_input,
    terminal_replies,
    threaded_stdout,
)
from interpreter_bot.sessions import ports, unrecorded_code_runs


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run all cells; 0 if every one ended ok and every file was kept, else 1.

    Raises:
        BotError: nothing was run.
    """
    codes = code_sources.read(options.source) if options.source else []
    codes += options.cell
    if not codes:
        raise code_sources.InputFileError(
            "There is no code to run; see interpreter-bot exec --help."
        )
    interrupt_signals.check_files(options.file)
    keeper = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=options.source == "-")
    writer = threaded_stdout.StdoutWriter()
    out = writer.file(sys.stdout)
    audience: ports.OutputSink
    if options.json:
        audience = json_replies.ExecutionJsonLines(keeper, answers, out=out)
    else:
        audience = terminal_replies.ExecutionPrinter(
            keeper, answers, out=out, err=writer.file(sys.stderr)
        )

    async def work(interrupter: interrupt_signals.Interrupter) -> int:
        one = config.for_one_session()
        async with (
            host_startup.open_broker(config, os.environ) as broker,
            host_startup.open_hosts(one, doorkeeper=broker, is_ephemeral=True) as hosts,
        ):
            key = f"exec {uuid.uuid4()}"
            session = unrecorded_code_runs.UnrecordedCodeRun(
                hosts, key, limits=config.limits, audience=audience
            )
            try:
                files = ((path.name, interrupt_signals.chunks(path)) for path in options.file)
                await session.attach(files)
                interrupter.stop_it = session.stop
                return 0 if await session.run(codes) else interrupt_signals.FAILED
            finally:
                await hosts.forget(key)

    return interrupt_signals.run(work, writer, keeper)
