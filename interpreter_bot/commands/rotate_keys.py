"""`interpreter-bot rotate-keys`: encrypt stored secrets with a new key.

Files and saved variables are not encrypted. A bot that runs meanwhile reads the key file again when
it cannot decrypt a secret. Until its next start it encrypts with a former key, so former keys stay
in the file.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from interpreter_bot import encryption, settings, stored_credentials
from interpreter_bot.app import execution_startup
from interpreter_bot.platforms.slack import installations
from interpreter_bot.store import third_party_tables
from interpreter_bot.wording import operator_words


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Rotate the keys.

    Raises:
        BotError: a key is missing, or the database cannot be used.
    """
    keys = encryption.KeyRing.from_settings(config)
    credentials = stored_credentials.StoredCredentials(config)
    # With the present keys first: if one is missing, this fails before a key is added.
    credentials.load()
    installation_count, login_count = asyncio.run(_reencrypt(config, keys))
    credential_count = credentials.reencrypt()
    sys.stdout.write(
        operator_words.keys_rotated(
            installation_count, login_count, credential_count, keys.location
        )
    )
    return 0


async def _reencrypt(config: settings.Settings, keys: encryption.KeyRing) -> tuple[int, int]:
    def reencrypt_text(text: str) -> str:
        return text if keys.is_current(text) else keys.encrypt(keys.decrypt(text))

    async with execution_startup.open_database(config, takes_orphans=False) as database:
        tables = third_party_tables.LibraryTables(database.engine, keys)
        # With the present keys first, for the same reason.
        await installations.open_store(config.slack, tables)
        login_count = await database.accounts.reencrypt(reencrypt_text)
        if keys.add_key():
            await installations.open_store(config.slack, tables)
            login_count = await database.accounts.reencrypt(reencrypt_text)
        return tables.encrypted_count, login_count
