"""Tables that slack_sdk keeps in our database, in both databases."""

import itertools

import pytest
import sqlalchemy
from cryptography import fernet
from slack_sdk.oauth.installation_store import Installation
from slack_sdk.oauth.installation_store.sqlalchemy import AsyncSQLAlchemyInstallationStore

from interpreter_bot import encryption, errors, settings
from interpreter_bot.platforms.slack import installations
from interpreter_bot.store import engines, third_party_tables

CLIENT = settings.Slack(client_id="1.2")
# As long as tokens that are renewed: encrypted, it fits into no column of slack_sdk's own.
TOKEN = f"xoxe.xoxb-1-{'T' * 150}"
NUMBERS = itertools.count(1)


def installation(**more):
    return Installation(
        app_id="A1", team_id="T1", user_id="U1", bot_token=TOKEN, bot_id="B1",
        bot_user_id="UBOT", user_token="xoxp-1", **more,
    )  # fmt: skip


@pytest.fixture
def is_new():
    # These tests create the tables of slack_sdk.
    return True


@pytest.fixture
def opened(database, tmp_path):
    async def open_store(keys=""):
        ring = encryption.KeyRing(keys, tmp_path / "keys")
        tables = third_party_tables.LibraryTables(database.engine, ring)
        return await installations.open_store(CLIENT, tables), tables

    return open_store


async def read_all_rows(database):
    stored_rows = []
    async with database.engine.connect() as connection:
        for table in ("slack_bots", "slack_installations"):
            # A new statement each time: a cached plan breaks when a column changes its type.
            query = f"SELECT * FROM {table} WHERE {next(NUMBERS)} > 0"
            rows = await connection.execute(sqlalchemy.text(query))
            stored_rows += [tuple(row) for row in rows]
    return str(stored_rows)


async def find_bot(store):
    return await store.async_find_bot(enterprise_id=None, team_id="T1")


async def test_a_bot_that_is_not_active_any_more_stores_no_token(opened, database):
    is_active = True

    async def ensure_active():
        if not is_active:
            raise errors.StoreError("Another bot is active.")

    store, _ = await opened()
    engines.check_commits(database.engine, ensure_active)
    await store.async_save(installation())
    is_active = False
    with pytest.raises(errors.StoreError):
        await store.async_save(installation())
    with pytest.raises(errors.StoreError):
        await store.async_delete_all(enterprise_id=None, team_id="T1")
    assert await find_bot(store) is not None


@pytest.mark.first_case
async def test_tokens_are_encrypted_in_the_database_and_nowhere_else(opened, database):
    store, _ = await opened()
    await store.async_save(installation())
    assert "xox" not in await read_all_rows(database)
    assert "fernet:" in await read_all_rows(database)
    assert (await find_bot(store)).bot_token == TOKEN
    reopened_store, tables = await opened()
    found_installation = await reopened_store.async_find_installation(
        enterprise_id=None, team_id="T1"
    )
    assert (found_installation.bot_token, found_installation.user_token) == (TOKEN, "xoxp-1")
    assert tables.encrypted_count == 0


@pytest.mark.first_case
async def test_what_was_stored_in_clear_is_encrypted_at_the_next_start(opened, database):
    plain_store = AsyncSQLAlchemyInstallationStore("1.2", database.engine)
    await plain_store.create_tables()
    await plain_store.async_save(installation())
    assert TOKEN in await read_all_rows(database)
    store, tables = await opened()
    assert tables.encrypted_count == 2
    assert "xox" not in await read_all_rows(database)
    assert (await find_bot(store)).bot_token == TOKEN


@pytest.mark.first_case
async def test_a_new_first_key_encrypts_everything_anew(opened):
    old_key, new_key = (fernet.Fernet.generate_key().decode() for _ in range(2))
    store, _ = await opened(old_key)
    await store.async_save(installation())
    _, tables = await opened(f"{new_key} {old_key}")
    assert tables.encrypted_count == 2
    store, tables = await opened(new_key)
    assert tables.encrypted_count == 0
    assert (await find_bot(store)).bot_token == TOKEN


@pytest.mark.first_case
async def test_without_the_key_the_start_says_so_and_changes_nothing(opened, database):
    store, _ = await opened()
    await store.async_save(installation())
    rows_before = await read_all_rows(database)
    with pytest.raises(errors.SettingsError, match="Add it there"):
        await opened(fernet.Fernet.generate_key().decode())
    assert await read_all_rows(database) == rows_before


@pytest.mark.first_case
async def test_a_key_file_that_is_empty_is_said_at_the_start_and_nothing_changes(
    opened, database, tmp_path
):
    plain_store = AsyncSQLAlchemyInstallationStore("1.2", database.engine)
    await plain_store.create_tables()
    await plain_store.async_save(installation())
    (tmp_path / "keys").touch(mode=0o600)
    with pytest.raises(errors.SettingsError, match="holds no key"):
        await opened()
    assert TOKEN in await read_all_rows(database)
