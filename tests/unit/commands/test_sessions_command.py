"""The list of `interpreter-bot sessions`."""

import asyncio
import contextlib
import io

from interpreter_bot import settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.commands import options, sessions_command
from interpreter_bot.kernels.files import workspaces


def test_a_list_that_is_no_terminals_has_whole_names_and_keys(tmp_path):
    paths = settings.Paths(data=tmp_path / "data", runtime=tmp_path / "run")
    config = settings.Settings(paths=paths)
    key = values.SessionKey("slack", "T024BE7LD", "C0123456789", "1764430000.123456")

    async def begin_session():
        async with execution_startup.open_database(config) as database:
            await database.sessions.open(key)

    asyncio.run(begin_session())
    output = io.StringIO()
    # Not `capsys`: alembic would keep its stream, which is closed at the end of the test.
    with contextlib.redirect_stdout(output):
        assert sessions_command.run(config, options.read(["sessions", "--all"])) == 0

    row = next(line for line in output.getvalue().splitlines() if "slack" in line)
    assert values.format_key(key) in row
    assert row.split()[0] == workspaces.Workspaces.name_of(values.format_key(key))[:12]
