"""`interpreter-bot rotate-keys`: encrypt the secrets in the database with a new key.

Files and saved variables are not encrypted. A bot that runs meanwhile reads the file again when it
meets what the new key encrypted. The former keys stay in the file, because until it is started
again it encrypts with them.
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
        BotError: a key is missing, or the database cannot be used; the sentence says so.
    """
    keys = encryption.KeyRing.of(config)
    installed, logged_in = asyncio.run(_encrypt(config, keys))
    entered = stored_credentials.StoredCredentials(config).reencrypt()
    sys.stdout.write(operator_words.keys_rotated(installed, logged_in, entered, keys.where))
    return 0


async def _encrypt(config: settings.Settings, keys: encryption.KeyRing) -> tuple[int, int]:
    def resealed(sealed: str) -> str:
        return sealed if keys.is_current(sealed) else keys.encrypt(keys.decrypt(sealed))

    async with execution_startup.open_database(config, takes_orphans=False) as database:
        tables = third_party_tables.LibraryTables(database.engine, keys)
        # With the present keys first: should one be missing, no key is added.
        await installations.store(config.slack, tables)
        count = await database.accounts.reseal(resealed)
        if keys.add_key():
            await installations.store(config.slack, tables)
            count = await database.accounts.reseal(resealed)
        return tables.encrypted, count
