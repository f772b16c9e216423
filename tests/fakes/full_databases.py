"""Databases that refuse what a test wants refused, as a full disk would."""

import asyncio
import contextlib
import sqlite3


@contextlib.asynccontextmanager
async def refusing_answers(directory):
    """Let the SQLite database below a directory store no answer to a question, for a while."""
    [file] = directory.rglob("*.db")
    # Beside the event loop, on which whoever writes at this moment goes on.
    await asyncio.to_thread(
        _execute,
        file,
        "CREATE TRIGGER full BEFORE UPDATE ON questions"
        " BEGIN SELECT RAISE(ABORT, 'disk is full'); END",
    )
    try:
        yield
    finally:
        await asyncio.to_thread(_execute, file, "DROP TRIGGER full")


def _execute(file, statement):
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement)
