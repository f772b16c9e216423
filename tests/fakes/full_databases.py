"""Databases that refuse what a test wants refused, as a full disk would."""

import contextlib
import sqlite3


@contextlib.contextmanager
def refusing_answers(directory):
    """Let the SQLite database below a directory store no answer to a question, for a while."""
    [file] = directory.rglob("*.db")
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON questions"
            " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER full")
