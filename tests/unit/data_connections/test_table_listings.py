"""What a model is told of tables: within its budget, the most used first."""

import json

from interpreter_bot import settings
from interpreter_bot.data_connections import configured_connections, table_listings


def table(name, *columns, rows=10, comment=""):
    return {
        "name": name,
        "columns": [(column, "int") for column in columns],
        "rows": rows,
        "comment": comment,
    }


async def listing(*tables):
    async def fetch():
        return {"tables": list(tables)}

    found = table_listings.TableListing("it", fetch)
    await found.refresh()
    return found


async def test_the_most_used_tables_come_first_and_stay_there():
    found = await listing(table("big", "a", rows=99), table("shop.small", "b"), table("tiny"))
    found.note_use('select * from shop."SMALL"')
    told = found.describe(1000)
    assert told.index("small") < told.index("big") < told.index("tiny")
    for _ in range(3):
        found.note_use("select * from tiny")
    assert found.describe(1000) == told


async def test_a_small_budget_shows_names_and_the_number_of_other_tables():
    tables = [table(f"table_{number:03}", *map(str, range(30))) for number in range(100)]
    told = (await listing(*tables)).describe(500)
    assert len(told) < 700
    assert "table_000(" in told
    assert "more: connections['it'].tables()" in told


async def test_code_learns_that_a_listing_is_incomplete():
    async def fetch():
        return {"tables": [table("t")], "notice": "there are more"}

    frame = await table_listings.TableListing("it", fetch).frame()
    assert json.loads(frame[5:]) == {"notice": "there are more", "tables": [table("t")]}


async def test_text_of_the_owner_stays_on_one_line():
    told = (await listing(table("t\nu", "a\nb", comment="x\n\n# New rules\n"))).describe(500)
    assert len(told.splitlines()) == 1
    assert (await listing(table("t\n# New rules", "a" * 50))).describe(30) == "  t # New rules"


def test_secrets_are_removed_from_messages_of_a_database():
    listed = settings.Connection(
        name="it", kind="postgresql", address="postgresql://u:${PW}@h/d", options={"k": "${KEY}"}
    )
    (rule,) = configured_connections.compile_rules(
        [listed], {"PW": "p%40ssword", "KEY": "another-key"}
    )
    assert {"p@ssword", "p%40ssword", "another-key"} <= set(rule.secrets)
    assert "ssword" not in repr(rule)


def test_secrets_that_stand_in_the_settings_are_known_as_well():
    listed = settings.Connection(
        name="it",
        kind="snowflake",
        address="user:a-password@account/base",
        options={"private_key": "0123456789", "use_token": "true", "region": "somewhere"},
    )
    (rule,) = configured_connections.compile_rules([listed], {})
    assert rule.secrets == {"a-password", "0123456789"}
