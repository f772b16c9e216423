"""`interpreter-bot exec`: run cells in one sandboxed session."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator

from interpreter_bot import app, settings
from interpreter_bot.commands import parsers
from interpreter_bot.platforms.console import (
    answering,
    json_lines,
    keeping,
    notebooks,
    printing,
    writing,
)
from interpreter_bot.sessions import cells, ports

_CHUNK_BYTES = 1024 * 1024
_LAST_WORDS_SECONDS = 1.0
_FAILED, _REFUSED = 1, 2


def add_to(commands: parsers.Commands) -> argparse.ArgumentParser:
    """Add the command's parser."""
    parser = commands.add_parser("exec", help="run cells in one sandboxed session")
    parser.epilog = (
        "Exit status: 0 if every cell ended ok and everything was kept that --keep asks for; "
        "1 if not, or if the output was not read to its end; 2 if nothing was run."
    )
    parser.add_argument(
        "source", nargs="?", metavar="SCRIPT.py|NOTEBOOK.ipynb|-", help="cells to run first"
    )
    parser.add_argument("--cell", action="append", default=[], metavar="CODE", help="a cell")
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        type=pathlib.Path,
        metavar="F",
        help="a file to put into /mnt/data",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="save images and files")
    parser.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run the code with your own rights"
    )
    return parser


def run(bot: settings.Settings, options: argparse.Namespace) -> int:
    """Run all cells; 0 if every one ended ok and everything was kept, else 1.

    Raises:
        BotError: nothing was run.
    """
    codes = notebooks.read(options.source) if options.source else []
    codes += options.cell
    if not codes:
        raise notebooks.InputFileError("There is no code to run; see interpreter-bot exec --help.")
    for path in options.file:
        if not path.exists() or path.is_dir():
            raise notebooks.InputFileError(f"{path} is not a file.")
    keeper = keeping.Keeper(options.keep) if options.keep is not None else None
    answers = answering.Answers(is_script=options.source == "-")
    writer = writing.Writer()
    out = writer.file(sys.stdout)
    audience: ports.Audience
    if options.json:
        audience = json_lines.JsonLines(keeper, answers, out=out)
    else:
        audience = printing.Printer(keeper, answers, out=out, err=writer.file(sys.stderr))
    # A session of a few cells needs one kernel, and none standing by.
    bot = bot.model_copy(update={"kernels": bot.kernels.model_copy(update={"spares": 0})})
    try:
        status = asyncio.run(_run_and_write(bot, codes, options.file, audience, writer))
    except writing.UnreadError as error:
        sys.stderr.write(f"interpreter-bot: {error}\n")
        return _FAILED
    return _FAILED if not status and keeper is not None and keeper.has_failed else status


async def _run_and_write(
    bot: settings.Settings,
    codes: list[str],
    files: list[pathlib.Path],
    audience: ports.Audience,
    writer: writing.Writer,
) -> int:
    """Run everything, and wait for the readers only once nothing is left of it."""
    with _interruptible() as interruption:
        try:
            status = await _run(bot, codes, files, audience, interruption)
        except BaseException as error:
            # What was shown so far goes out, to a reader who is there.
            with contextlib.suppress(OSError):
                await asyncio.wait_for(writer.drain(), _LAST_WORDS_SECONDS)
            if not isinstance(error, asyncio.CancelledError):
                raise
            return _REFUSED if interruption.session is None else _FAILED
        # There is no cell to stop any more: the next signal ends the wait.
        interruption.session = None
        try:
            await writer.drain()
        except asyncio.CancelledError:
            return _FAILED
        return status


async def _run(
    bot: settings.Settings,
    codes: list[str],
    files: list[pathlib.Path],
    audience: ports.Audience,
    interruption: _Interruption,
) -> int:
    """Run everything; signals are ours from the first moment, so that nothing is left behind."""
    async with app.kernels(bot, is_ephemeral=True) as pool:
        key = f"exec {uuid.uuid4()}"
        session = cells.Cells(pool, key, limits=bot.limits, audience=audience)
        try:
            await session.attach((path.name, _chunks(path)) for path in files)
            interruption.session = session
            return 0 if await session.run(codes) else _FAILED
        finally:
            await pool.forget(key)


class _Interruption:
    """What a signal finds: a session to stop, or only the way out."""

    session: cells.Cells | None = None

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._stopping: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop the cell that runs; the second time, or before there is any, end everything."""
        if self.session is None or self._stopping is not None:
            self.end()
        else:
            self._stopping = asyncio.create_task(self.session.stop(), name="stop")

    def end(self) -> None:
        """End everything in order."""
        if self._task is not None:
            self._task.cancel()


@contextlib.contextmanager
def _interruptible() -> Iterator[_Interruption]:
    loop = asyncio.get_running_loop()
    interruption = _Interruption()
    loop.add_signal_handler(signal.SIGINT, interruption.stop)
    loop.add_signal_handler(signal.SIGTERM, interruption.end)
    try:
        yield interruption
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


async def _chunks(path: pathlib.Path) -> AsyncIterator[bytes]:
    try:
        with await asyncio.to_thread(path.open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise notebooks.InputFileError(f"{path} cannot be read.") from error
