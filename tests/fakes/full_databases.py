"""Make a database refuse some writes, as it does on a full disk."""

import asyncio
import contextlib
import sqlite3


@contextlib.asynccontextmanager
async def refuse_answers(directory):
    """Make the SQLite database below a directory refuse answers to questions inside the context."""
    [file] = directory.rglob("*.db")
    # In a thread: another writer of this moment needs the event loop to finish.
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
