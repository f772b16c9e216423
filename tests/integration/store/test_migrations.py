"""Migrations, also by several bots at once."""

import asyncio
import os
import pathlib
import re
import stat
import subprocess
import sys
import zipfile

import alembic.command
import alembic.script
import pytest
import sqlalchemy

from interpreter_bot import errors, values
from interpreter_bot.store import databases, engines, records

ROOT = pathlib.Path(__file__).parents[3]
KEY = values.SessionKey("web", thread="t")


@pytest.fixture
def is_new():
    return True


async def run_on_connection(url, work):
    """Run a function on a connection as upgrades use it."""
    engine = engines.make_for_upgrade(engines.parse(url))
    async with engine.begin() as connection:
        result = await connection.run_sync(work)
    await engine.dispose()
    return result


def list_tables(connection):
    names = sqlalchemy.inspect(connection).get_table_names()
    # SQLite keeps its index of words in five tables.
    return {name for name in names if not name.startswith(("sqlite_", "turn_words"))}


async def test_opening_an_empty_database_makes_the_tables(url, opening):
    async with opening() as database:
        assert await database.sessions.list_recent("web") == ()
    assert await run_on_connection(url, list_tables) == {
        "alembic_version",
        *records.Record.metadata.tables,
    }


async def test_migrations_lead_to_exactly_the_tables_of_the_code(url, opening):
    async with opening():
        pass
    await run_on_connection(
        url, lambda connection: alembic.command.check(databases.alembic_config(connection))
    )


async def test_rows_of_the_first_tables_outlive_an_upgrade(url, opening):
    def make_first_tables(connection):
        alembic.command.upgrade(databases.alembic_config(connection), "0028")
        connection.execute(
            sqlalchemy.text(
                "INSERT INTO hosts"
                " (address, data_id, boot_id, free_bytes, memory_bytes, is_draining, seen)"
                " VALUES ('a:1', 'd', 'b', 1, 2, false, '2026-01-01 00:00:00+00:00')"
            )
        )

    if url.startswith("sqlite"):
        engines.make_file(engines.parse(url))
    await run_on_connection(url, make_first_tables)
    async with opening() as database:
        assert await database.fleet_hosts.list_addresses() == ["a:1"]


@pytest.mark.first_case
async def test_opening_again_keeps_what_was_there(opening):
    async with opening() as database:
        first = await database.sessions.open(KEY)
    async with opening() as database:
        assert (await database.sessions.open(KEY)).id == first.id


@pytest.mark.first_case
async def test_the_newest_database_is_opened_without_alembic(url, opening):
    async with opening():
        pass
    code = (
        "import sys\n"
        "from interpreter_bot.store import databases, engines\n"
        "databases.upgrade(engines.parse(sys.argv[1]))\n"
        "sys.exit('alembic' in sys.modules)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, url)
    assert await process.wait() == 0


async def test_replicas_that_start_together_upgrade_once(opening):
    async def start():
        async with opening() as database:
            return await database.sessions.open(KEY)

    sessions = await asyncio.gather(*(start() for _ in range(5)))
    assert len({session.id for session in sessions}) == 1


@pytest.mark.first_case
async def test_processes_that_start_together_upgrade_once(url, opening, tmp_path):
    program = (
        "import asyncio, pathlib, sys\n"
        "from interpreter_bot.store import databases\n"
        "async def main():\n"
        "    files = pathlib.Path(sys.argv[2])\n"
        "    async with databases.Database.open(sys.argv[1], blobs_directory=files): pass\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-W", "error", "-c", program, url, tmp_path]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(4)]
    assert [await process.wait() for process in processes] == [0, 0, 0, 0]


@pytest.mark.parametrize("version", ["0001", "0021", "9999"])
async def test_a_database_of_another_version_is_refused_in_a_sentence(url, opening, version):
    async with opening():
        pass
    set_version = sqlalchemy.text(f"UPDATE alembic_version SET version_num = '{version}'")
    await run_on_connection(url, lambda connection: connection.execute(set_version))
    with pytest.raises(errors.StoreError, match="perhaps a development version"):
        async with opening():
            pass


@pytest.mark.first_case
def test_the_alembic_command_works_by_itself(url):
    for words in (
        ["upgrade", "head"],
        ["check"],
        ["upgrade", "head", "--sql"],
    ):
        command = [sys.executable, "-m", "alembic", "-x", f"url={url}", *words]
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT)


def test_the_alembic_command_takes_the_database_of_the_settings(tmp_path):
    environment = {**os.environ, "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data")}
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT, env=environment)
    assert list((tmp_path / "data").glob("*.db"))


@pytest.mark.slow
def test_an_installed_bot_brings_its_migrations(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, check=True, capture_output=True, timeout=60, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    program = (
        "from interpreter_bot.store import databases, engines\n"
        "url = engines.parse('sqlite:///bot.db')\n"
        "engines.make_file(url)\n"
        "databases.upgrade(url)\n"
        "print(databases.alembic_config().get_main_option('script_location'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    output = subprocess.check_output(
        [sys.executable, "-c", program], text=True, timeout=60, cwd=tmp_path, env=environment
    )
    assert output.strip() == str(tmp_path / "installed/interpreter_bot/store/migrations")


def test_migrations_form_one_line_and_are_named_by_number():
    scripts = alembic.script.ScriptDirectory.from_config(databases.alembic_config())
    revisions = list(scripts.walk_revisions())
    assert len(scripts.get_heads()) == 1
    assert all(re.fullmatch(r"\d{4}_[a-z_]+\.py", os.path.basename(s.path)) for s in revisions)


@pytest.mark.first_case
async def test_an_sqlite_file_is_for_our_eyes_only_and_logs_ahead(tmp_path, url, opening):
    if not url.startswith("sqlite"):
        pytest.skip("a matter of SQLite")
    async with opening() as database:
        await database.sessions.open(KEY)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("bot.db*")}
        assert modes == {0o600}
        assert (tmp_path / "bot.db-wal").exists()


def test_also_where_a_link_leads_to_it_that_leads_nowhere_yet(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "there.db")
    engines.make_file(engines.parse(f"sqlite:///{tmp_path}/link.db"))
    assert stat.S_IMODE((tmp_path / "there.db").stat().st_mode) == 0o600


async def test_a_database_that_cannot_be_reached_is_named_with_the_reason(
    tmp_path, postgresql, caplog
):
    reasons = {
        f"postgresql://postgres@/none?host={postgresql.directory}": '"none" does not exist',
        f"postgresql://me:password@/x?host={tmp_path}/nowhere": "x at this machine .* No such file",
        "postgresql://me:password@127.0.0.1:1/x": "x at 127.0.0.1 .*: Connection refused",
        "sqlite:////proc/nowhere/bot.db": "database /proc/nowhere/bot.db .*: No such file",
    }
    for url, reason in reasons.items():
        with pytest.raises(errors.StoreError, match=reason) as caught:
            await open_once(url, tmp_path)
        assert "password" not in str(caught.value)
    assert "Traceback" not in caplog.text


async def test_a_file_that_is_no_database_is_a_sentence(tmp_path):
    (tmp_path / "bot.db").write_bytes(b"No database at all. " * 100)
    with pytest.raises(errors.StoreError, match=r"bot\.db cannot be used: file is not"):
        await open_once(f"sqlite:///{tmp_path}/bot.db", tmp_path)


async def open_once(url, tmp_path):
    async with databases.Database.open(url, blobs_directory=tmp_path / "kept"):
        pass
