"""`interpreter-bot exec`: run cells in one sandboxed session."""

from __future__ import annotations

import argparse
import sys
import uuid

from interpreter_bot import settings
from interpreter_bot.app import kernel_pool
from interpreter_bot.commands import terminal_runs
from interpreter_bot.platforms.console import (
    code_sources,
    json_output,
    saved_files,
    stdout_writer,
    terminal_input,
    terminal_output,
)
from interpreter_bot.sessions import exec_runs, ports


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
    terminal_runs.check_files(options.file)
    keeper = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=options.source == "-")
    writer = stdout_writer.StdoutWriter()
    out = writer.file(sys.stdout)
    audience: ports.OutputSink
    if options.json:
        audience = json_output.ExecutionJsonLines(keeper, answers, out=out)
    else:
        audience = terminal_output.ExecutionPrinter(
            keeper, answers, out=out, err=writer.file(sys.stderr)
        )

    async def work(interrupter: terminal_runs.Interrupter) -> int:
        async with kernel_pool.open_pool(config.for_one_session(), is_ephemeral=True) as pool:
            key = f"exec {uuid.uuid4()}"
            session = exec_runs.ScriptRun(pool, key, limits=config.limits, audience=audience)
            try:
                files = ((path.name, terminal_runs.chunks(path)) for path in options.file)
                await session.attach(files)
                interrupter.stop_it = session.stop
                return 0 if await session.run(codes) else terminal_runs.FAILED
            finally:
                await pool.forget(key)

    return terminal_runs.run(work, writer, keeper)
