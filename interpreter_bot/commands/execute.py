"""`interpreter-bot exec`: run cells in one sandboxed session."""

from __future__ import annotations

import argparse
import sys
import uuid

from interpreter_bot import settings
from interpreter_bot.app import pooling
from interpreter_bot.commands import terminals
from interpreter_bot.platforms.console import (
    answering,
    json_lines,
    keeping,
    notebooks,
    printing,
    writing,
)
from interpreter_bot.sessions import cells, ports


def run(bot: settings.Settings, options: argparse.Namespace) -> int:
    """Run all cells; 0 if every one ended ok and everything was kept, else 1.

    Raises:
        BotError: nothing was run.
    """
    codes = notebooks.read(options.source) if options.source else []
    codes += options.cell
    if not codes:
        raise notebooks.InputFileError("There is no code to run; see interpreter-bot exec --help.")
    terminals.check_files(options.file)
    keeper = keeping.Keeper(options.keep) if options.keep is not None else None
    answers = answering.Answers(is_script=options.source == "-")
    writer = writing.Writer()
    out = writer.file(sys.stdout)
    audience: ports.Audience
    if options.json:
        audience = json_lines.JsonLines(keeper, answers, out=out)
    else:
        audience = printing.Printer(keeper, answers, out=out, err=writer.file(sys.stderr))

    async def work(interruption: terminals.Interruption) -> int:
        async with pooling.opened(bot.for_one_session(), is_ephemeral=True) as pool:
            key = f"exec {uuid.uuid4()}"
            session = cells.Cells(pool, key, limits=bot.limits, audience=audience)
            try:
                files = ((path.name, terminals.chunks(path)) for path in options.file)
                await session.attach(files)
                interruption.stop_it = session.stop
                return 0 if await session.run(codes) else terminals.FAILED
            finally:
                await pool.forget(key)

    return terminals.run(work, writer, keeper)
