"""`interpreter-bot rotate-keys`, as an operator calls it."""

import asyncio
import os
import subprocess
import sys

import pytest
from slack_sdk.oauth.installation_store import Installation

from interpreter_bot import encryption, settings, stored_credentials
from interpreter_bot.platforms.slack import installations
from interpreter_bot.store import engines, third_party_tables


async def install(data, *, token=""):
    """Store a token if one is given; return the stored one."""
    ring = encryption.KeyRing("", data / "keys")
    engine = engines.make(engines.parse(engines.default_url(data)))
    tables = third_party_tables.LibraryTables(engine, ring)
    store = await installations.open_store(settings.Slack(client_id="1.2"), tables)
    if token:
        given = {"app_id": "A1", "bot_id": "B1", "bot_user_id": "U2", "bot_token": token}
        await store.async_save(Installation(user_id="U1", team_id="T1", **given))
    found = await store.async_find_bot(enterprise_id=None, team_id="T1")
    await engine.dispose()
    return found.bot_token, tables.encrypted_count


@pytest.mark.gate
def test_keys_are_rotated_and_a_missing_one_is_said(tmp_path):
    asyncio.run(install(tmp_path, token="xoxb-1"))
    [old] = (tmp_path / "keys").read_text().split()
    variables = {**os.environ, "INTERPRETER_BOT_PATHS__DATA": str(tmp_path)}
    command = [sys.executable, "-m", "interpreter_bot", "rotate-keys"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert "2 Slack workspaces, 0 logins of people and 0 keys that people entered" in done.stdout
    new, kept = (tmp_path / "keys").read_text().split()
    assert kept == old
    assert new not in done.stdout + done.stderr
    (tmp_path / "keys").write_text(new)
    assert asyncio.run(install(tmp_path)) == ("xoxb-1", 0)
    (tmp_path / "keys").write_text(old)
    refused = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Add it there" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (tmp_path / "keys").read_text() == old


def test_no_key_is_added_if_that_of_stored_credentials_is_missing(tmp_path):
    config = settings.Settings(paths=settings.Paths(data=tmp_path))
    stored_credentials.StoredCredentials(config).save({"DISCORD_TOKEN": "1"})
    stored = (tmp_path / "credentials").read_text()
    other = encryption.new_key()
    (tmp_path / "keys").write_text(other)
    refused = subprocess.run(
        [sys.executable, "-m", "interpreter_bot", "rotate-keys"],
        env={**os.environ, "INTERPRETER_BOT_PATHS__DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert f"delete {tmp_path / 'credentials'} " in refused.stderr
    assert (tmp_path / "keys").read_text() == other
    assert (tmp_path / "credentials").read_text() == stored
