"""`interpreter-bot exec`: run cells in one sandboxed session."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import pathlib
import sys
import uuid
from typing import Final

from interpreter_bot import code_activity, errors, settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.commands import console_runs, exit_statuses
from interpreter_bot.platforms.console import (
    code_sources,
    json_replies,
    saved_files,
    terminal_input,
    terminal_pictures,
    terminal_replies,
    threaded_output,
)
from interpreter_bot.sessions import questions, unrecorded_code_runs
from interpreter_bot.wording import operator_words

_log = logging.getLogger(__name__)

_PLATFORM: Final = "exec"
_STDIN: Final = pathlib.Path("-")


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Run all cells; return 0 if all of them succeeded and all files were saved, else 1.

    Raises:
        BotError: nothing was run.
    """
    cells = code_sources.read_cells(options.source) if options.source else []
    cells += options.cell
    if not cells:
        raise code_sources.InputFileError(operator_words.NO_CODE)
    files = [path for path in options.file if path != _STDIN]
    console_runs.require_files(files)
    if _STDIN in options.file and options.source == "-":
        raise code_sources.InputFileError(operator_words.STDIN_IS_CODE)
    piped_file = terminal_input.wait_for_piped_file() if _STDIN in options.file else None
    saver = saved_files.SavedFiles(options.keep) if options.keep is not None else None
    answers = terminal_input.StdinAnswers(is_script=options.source == "-" or piped_file is not None)
    writer = threaded_output.OutputWriter()
    out = writer.file(sys.stdout)
    open_questions = questions.Questions()
    reply: json_replies.JsonLines | terminal_replies.ExecutionPrinter
    if options.json:
        json_answers = json_replies.JsonAnswers(answers)
        reply = json_replies.JsonLines(saver, json_answers, open_questions.answer, out=out)
    else:
        reply = terminal_replies.ExecutionPrinter(
            saver,
            answers,
            open_questions.answer,
            out=out,
            err=writer.file(sys.stderr),
            pictures=terminal_pictures.choose_protocol(options.pictures, os.environ, sys.stdout),
            limit_seconds=config.limits.execution_seconds,
        )

    async def work(interrupter: console_runs.Interrupter) -> int:
        session_config = config.for_one_session()
        async with (
            execution_startup.open_broker(config, os.environ) as broker,
            execution_startup.open_hosts(
                session_config, doorkeeper=broker, is_ephemeral=True
            ) as hosts,
        ):
            key = values.format_key(values.SessionKey(_PLATFORM, thread=f"{uuid.uuid4()}"))
            record = _InstallationRecord(config, key)
            session = unrecorded_code_runs.UnrecordedCodeRun(
                hosts,
                key,
                limits=config.limits,
                reply=reply,
                all_questions=open_questions,
                on_installation=record.write,
            )
            try:
                attachments = [(path.name, code_sources.read_chunks(path)) for path in files]
                if piped_file is not None:
                    attachments.append((piped_file.name, piped_file.read_chunks()))
                await session.attach(attachments)
                interrupter.set_stop(session.stop)
                async with console_runs.ticking(reply.tick):
                    is_ok = await session.run(cells)
                return 0 if is_ok else exit_statuses.FAILED
            finally:
                await hosts.forget(key)
                await record.close()

    return console_runs.run(work, writer, saver)


class _InstallationRecord:
    """Records installations in the database, in which the session itself is not stored."""

    def __init__(self, config: settings.Settings, key: str) -> None:
        self._config = config
        self._key = key
        self._write_tasks: set[asyncio.Task[None]] = set()

    def write(self, kernel_id: str, layer: code_activity.InstalledLayer) -> None:
        """Begin to record an installation."""
        self._write_tasks.add(asyncio.create_task(self._write(kernel_id, layer), name="record"))

    async def _write(self, kernel_id: str, layer: code_activity.InstalledLayer) -> None:
        installation = code_activity.Installation(
            self._key, kernel_id, _PLATFORM, layer.name, layer.packages
        )
        try:
            database_context = execution_startup.open_database(self._config, takes_orphans=False)
            async with database_context as database:
                await database.activities.add([installation])
        except errors.BotError:
            _log.exception("an installation could not be recorded: %s", layer.packages)

    async def close(self) -> None:
        """Wait until everything is recorded."""
        await asyncio.gather(*self._write_tasks)
