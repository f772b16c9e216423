"""Data connections in whole turns: what a model is told, what is recorded, what a person allows."""

import contextlib
import sqlite3

import pytest

from interpreter_bot import code_activity, settings
from interpreter_bot.sessions import requests
from tests.fakes import openai_server, replies
from tests.integration.sessions import conftest

pytestmark = pytest.mark.kernel

SECRET = "a-secret-of-the-bot"


@pytest.fixture
def connections(tmp_path):
    """One that reads and one that writes, to the same file; both know a secret."""
    path = tmp_path / "there" / "sales.db"
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table orders (id integer primary key, region text)")
        connection.execute("insert into orders values (1, 'north')")
    shared = {"kind": "sqlite", "address": "${SALES}", "options": {"unused": "${KEY}"}}
    return {
        "connections": (
            settings.Connection(name="sales", description="The shop's orders", **shared),
            settings.Connection(name="till", writes=True, **shared),
        ),
        "keys": {"SALES": str(path), "KEY": SECRET},
    }


def join_output(reply):
    return "".join(output.plain for output in reply.contents("output"))


async def test_a_model_is_told_of_tables_and_what_code_asked_is_recorded(open_bot, connections):
    code = "print(connections['sales'].query('select * from orders').region[0])"
    script = (openai_server.code(code), openai_server.text("north"))
    async with open_bot(*script, **connections) as bot:
        reply = await bot.ask("Which region?")
        system = bot.server.requests[0].messages[0]["content"]
        assert SECRET not in str(bot.server.requests[-1].messages)
    assert join_output(reply).strip() == "north"
    assert 'df = connections["sales"].query("SELECT' in system
    assert (
        'connections["sales"] (SQLite: The shop\'s orders)\n  orders(id INTEGER, region TEXT)'
        in system
    )
    async with open_bot(**connections) as bot:
        service = bot.service.services
        (query,) = await service.database.activities.list_latest(code_activity.Query, limit=9)
        assert (query.connection, query.person, query.rows) == ("sales", conftest.ANNA.id, 1)
        assert query.statement == "select * from orders"


async def test_what_one_whose_code_ran_there_may_not_use_nobodys_code_can(open_bot, connections):
    sales, till = connections["connections"]
    till = till.model_copy(update={"writes": False, "people": (conftest.ANNA.id,)})
    groups = connections | {"connections": (sales, till)}
    listed, ben = "print(*connections)", requests.Person("u2", "Ben")
    async with open_bot(**groups) as bot:
        assert join_output(await bot.run(listed)).split() == ["sales", "till"]
        none = "connections['sales'].query('select * from orders where id > 9')"
        reply = await bot.run(f"{none}\nconnections['sales'].cursor()")
        assert "sales: the query found no rows" in join_output(reply)
        assert "has no 'cursor': ask it by connections['sales'].query(" in str(
            reply.contents("output")
        )
        # What he leaves behind may still run when she asks.
        assert join_output(await bot.run(listed, person=ben)).split() == ["sales"]
        assert join_output(await bot.run(listed)).split() == ["sales"]
    async with open_bot(**groups) as bot:
        await bot.service.reset(conftest.KEY)
        assert join_output(await bot.run(listed)).split() == ["sales", "till"]


async def test_what_writes_runs_once_a_person_allows_it_and_only_as_they_saw_it(
    open_bot, connections
):
    sql = "insert into orders (region) values (:r)"
    run = f"connections['till'].query({sql!r}, {{'r': 'south'}})"
    count = "print(len(connections['sales'].query('select * from orders')))"
    shown = f"-- To run on till:\n{sql}\n-- :r = 'south'"
    async with open_bot(**connections) as bot:
        reply = await bot.run(run, replies.Reply(approvals=[None]))
        assert "This statement was not approved to run on till" in str(reply.received)
        assert reply.contents("approve") == [shown]
        edited = await bot.run(run, replies.Reply(approvals=[shown.replace("south", "x")]))
        assert "not approved" in str(edited.received)
        assert join_output(await bot.run(count)).strip() == "1"
        await bot.run(run, replies.Reply(approvals=[shown]))
        assert join_output(await bot.run(count)).strip() == "2"
        # Whoever goes to the door without asking, and whoever asks for another connection, or
        # changes the statement after it was allowed.
        forged = await bot.run(
            "import guest.data_connection_objects as there, guest.tool_functions as asking, json\n"
            "wish = {'sql': 'delete from orders', 'parameters': {}}\n"
            "print(there._send_request('till/query', wish))\n"
            "try:\n"
            "    asking.ask(get_ipython().kernel,"
            " {'do': 'allow statement', 'connection': 'sales', **wish})\n"
            "except asking.ToolError as error:\n"
            "    print(error)\n"
            "asking.ask(get_ipython().kernel, {'do': 'allow statement', 'connection': 'till',"
            " 'sql': 'delete from orders where id = 9', 'parameters': {}})\n"
            "print(there._send_request('till/query', wish))",
            replies.Reply(approvals=["-- To run on till:\ndelete from orders where id = 9"]),
        )
        assert join_output(forged).count("is_approval_wanted") == 2
        later = await bot.run(
            "print(there._send_request('till/query', {'sql': 'delete from orders where id = 9',"
            " 'parameters': {}}))"
        )
        assert "is_approval_wanted" in join_output(later), "what was allowed in a turn ends with it"
        assert "only reads" in join_output(forged)
        assert join_output(await bot.run(count)).strip() == "2"


@pytest.mark.slow
async def test_what_a_turn_asked_is_told_with_its_end_and_stays_with_it(open_bot, connections):
    code = (
        "sales = connections['sales']\n"
        "sales.query('select * from orders')\n"
        "for sql in ('delete from orders', 'select missing from orders'):\n"
        "    try:\n"
        "        sales.query(sql)\n"
        "    except Exception as error:\n"
        "        print('refused')\n"
        "connections['till'].query('delete from orders')"
    )
    async with open_bot(**connections) as bot:
        reply = await bot.run(code, replies.Reply(approvals=[None]))
        idle = await bot.run("1")
        (turn, later) = await bot.service.queries.history(conftest.KEY)
    async with open_bot(**connections) as bot:
        recorded = await bot.service.services.database.activities.list_latest(
            code_activity.Query, limit=9
        )
    assert [one.statement for one in recorded] == [
        one.statement for one in reversed(reply.end.queries)
    ]
    read, written, missing, not_allowed = reply.end.queries
    assert (read.connection, read.statement, read.rows) == ("sales", "select * from orders", 1)
    assert read.seconds > 0
    assert not read.reason
    assert written.reason
    assert "missing" in missing.reason
    assert (not_allowed.connection, not_allowed.rows) == ("till", 0)
    assert "was not approved to run" in not_allowed.reason
    assert turn.queries == reply.end.queries
    assert idle.end.queries == later.queries == ()
