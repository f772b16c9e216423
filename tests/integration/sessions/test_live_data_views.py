"""What a kernel has, looked into while it lives: tables that it showed, names that code may use."""

import asyncio
import time

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.sessions import live_data_views
from tests.fakes import replies
from tests.integration.sessions.conftest import ANNA, KEY

pytestmark = pytest.mark.kernel

SHOWN = """
import duckdb, pandas, polars, pyarrow
numbers = list(range(1, 41))
base = {"n": numbers, "s": [None, *(f"w{n % 7}" for n in numbers[1:])]}
days = pandas.date_range("2026-01-01", periods=40, tz="Europe/Berlin")
frame = pandas.DataFrame(base | {"t": days})
for one in (frame, polars.DataFrame(base), pyarrow.table(base), duckdb.sql("from frame")):
    display(one)
count = get_ipython().execution_count
"""
HOSTILE = """
import os, pandas
class Evil(str):
    def __lt__(self, other): os._exit(1)
    __gt__ = __eq__ = __hash__ = __repr__ = __str__ = __format__ = casefold = __lt__
class Worse:
    def __repr__(self): os._exit(1)
    __deepcopy__ = __repr__
    @property
    def __class__(self): os._exit(1)
class Own(pandas.DataFrame):
    pass
shown = [pandas.DataFrame({"x": range(45)}), Own({"x": range(45)})]
for one in shown:
    display(one)
odd = Worse()
shown[0].attrs["x"] = Worse()
shown[0]["x"] = pandas.array([Evil("a"), Worse(), [Worse()], 3, "b"] * 9, dtype=object)
"""
OBJECT = """
publish = get_ipython().display_pub.publish
get_ipython().answer_bot = lambda *_: publish({"application/json": {}})
"""
ALL = {"rows": [0, 100], "columns": [0, 20]}


@pytest.fixture
def read_page():
    """Read a page of a bot's table: `page = await read_page(bot, table, search="x")`."""

    async def read_table_page(bot, table, **wanted):
        question = live_data_views.parse_request(wanted if "summaries" in wanted else ALL | wanted)
        return await bot.service.queries.read_table(KEY, table.handle, question, ANNA)

    return read_table_page


@pytest.mark.slow
async def test_tables_of_all_libraries_are_sorted_filtered_searched_and_summed_up(
    open_bot, read_page
):
    async with open_bot() as bot:
        reply = await bot.run(SHOWN)
        queries = bot.service.queries
        tables = [output for output in reply.contents("output") if isinstance(output, values.Table)]
        assert [(one.row_count, bool(one.handle)) for one in tables] == [(40, True)] * 4
        for table in tables:
            index = table.index_count
            page = await read_page(bot, table, rows=[30, 5])
            assert (page.first_row, page.match_count, page.row_count) == (30, 40, 40)
            assert [row[index] for row in page.rows] == ["31", "32", "33", "34", "35"]
            assert [one.kind for one in page.columns[index:]][:2] == ["number", "text"]
            page = await read_page(bot, table, sort=[index + 1, True])
            assert [row[index + 1] for row in page.rows][:6] == ["w6"] * 5 + ["w5"]
            assert page.rows[-1][index + 1] is None
            filters = [[index, ">", "7"], [index + 1, "contains", "W6"]]
            page = await read_page(bot, table, filters=filters)
            assert [row[index] for row in page.rows] == ["13", "20", "27", "34"]
            page = await read_page(bot, table, filters=[[index + 1, "missing", ""]])
            assert [row[index] for row in page.rows] == ["1"]
            assert (await read_page(bot, table, search="w3")).match_count == 6
            numbers, words = (await read_page(bot, table, summaries=[index, index + 1])).summaries
            assert (sum(numbers.bins), numbers.minimum, numbers.maximum) == (40, "1", "40")
            assert (words.distinct, words.missing, words.top[0][1]) == (7, 1, 6)
        for table in (tables[0], tables[3]):
            last = table.index_count + 2
            filters = [[last, "≥", "2026-02-01"]]
            assert (await read_page(bot, table, filters=filters)).match_count in (8, 9)
            with pytest.raises(errors.BotError, match="no date"):
                await read_page(bot, table, filters=[[last, "≥", "soon"]])
        found = await queries.complete_code(KEY, "print(frame['")
        assert [option[0] for option in found.options] == ["n", "s", "t"]
        found = await queries.complete_code(KEY, "frame.sort_values(b")
        assert (found.typed, found.options[0]) == (1, ("by=", "property", ""))
        assert found.signature.label.startswith("sort_values(by, *, axis=0, ascending=True")
        # One that stands still is woken, but not again for the next key.
        (kernel,) = bot.service.services.hosts.pool.kernels.values()
        await kernel.freeze()
        assert (await queries.complete_code(KEY, "fram")).options[0][0] == "frame"
        await kernel.freeze()
        queries._next_wake_time = time.monotonic() + 1000
        with pytest.raises(live_data_views.PythonBusyError):
            await queries.complete_code(KEY, "fram")
        # A look is no cell of the person's.
        assert (await bot.run("print(get_ipython().execution_count - count)")).contents("output")[
            0
        ].text == "1\n"


async def test_no_look_runs_code_of_the_values_or_starts_a_kernel(open_bot, read_page):
    async with open_bot() as bot:
        reply = await bot.run(HOSTILE)
        hostile, own = (
            output for output in reply.contents("output") if isinstance(output, values.Table)
        )
        page = await read_page(bot, hostile, sort=[1, False])
        assert [row[1] for row in page.rows][::9] == ["3", "b", "<Evil>", "<Worse>", "[<Worse>]"]
        assert (await read_page(bot, hostile, search="b")).match_count == 9
        assert (await read_page(bot, hostile, filters=[[1, "=", "a"]])).match_count == 0
        assert (await read_page(bot, hostile, summaries=[1])).summaries[0].distinct == 5
        with pytest.raises(errors.BotError, match="class of its own"):
            await read_page(bot, own)
        described = {one.name: one for one in await bot.service.queries.describe_variables(KEY)}
        assert (described["shown"].type, described["shown"].shape) == ("list", (2,))
        assert (described["odd"].text, described["odd"].handle) == ("<Worse>", "")
        assert described["one"].type == "Own"
        for code in (
            "odd.",
            "odd[",
            "odd(",
            "shown[0]['x'].",
            "Evil.",
            "Evil('a').",
            "own.__class__.",
        ):
            await bot.service.queries.complete_code(KEY, code)
        await bot.run(OBJECT)
        with pytest.raises(errors.BotError, match="unreadable answer"):
            await read_page(bot, hostile)
        await bot.service.reset(KEY)
        with pytest.raises(live_data_views.TableGoneError):
            await read_page(bot, hostile)
        with pytest.raises(live_data_views.TableGoneError):
            await bot.service.queries.complete_code(KEY, "odd.")
        assert not bot.service.services.hosts.pool.kernels


@pytest.mark.slow
async def test_a_table_is_saved_as_parquet(open_bot):
    code = "import polars\nshown = polars.DataFrame({'a': range(60)})\nshown"
    async with open_bot() as bot:
        (table,) = (await bot.run(code)).contents("output")
        name = await bot.service.save_table(KEY, table.handle, ANNA, "parquet")
        read = f"import pandas; print(pandas.read_parquet({name!r}).a.sum())"
        assert (await bot.run(read)).contents("output")[0].text == "1770\n"


@pytest.mark.slow
async def test_tables_of_a_released_session_open_from_its_saved_variables(open_bot, read_page):
    code = """
import pandas
frame = pandas.DataFrame({"n": range(40)})
display(frame)
display(frame.query("n > 9"))
large = [frame.copy()]
display(large[0])
"""
    async with open_bot(snapshots=settings.Snapshots()) as bot:
        reply = await bot.run(code)
        tables = [output for output in reply.contents("output") if isinstance(output, values.Table)]
        address, hosts = values.format_key(KEY), bot.service.services.hosts
        await hosts.end_session(address, "It was let go.")
        assert not await hosts.statuses({address})
        named, unnamed, _ = tables
        assert (await read_page(bot, named, search="17")).match_count == 1
        assert (await read_page(bot, unnamed)).row_count == 30
        await hosts.end_session(address, "It was let go.")
        for table in (named, unnamed):
            name = await bot.service.save_table(KEY, table.handle, ANNA)
            async with bot.service.queries.open_file(KEY, name) as (info, _):
                assert info.size_bytes > 50
        # Nothing that people see of variables speaks of it.
        held = await hosts.variables(address)
        assert set(held.saved.names) == {"pandas", "frame", "large"}


@pytest.mark.slow
async def test_who_looks_into_old_tables_has_no_more_kernels_than_others(
    open_bot, read_page, monkeypatch
):
    monkeypatch.setattr(live_data_views, "MAX_START_SECONDS", 2.0)
    other = values.SessionKey("web", thread="other")
    groups = {
        "kernels": settings.Kernels(preload=(), spares=0, per_person=1),
        "snapshots": settings.Snapshots(),
    }
    async with open_bot(**groups) as bot:
        reply = await bot.run("import pandas\nframe = pandas.DataFrame({'n': range(40)})\nframe")
        (table,) = (
            output for output in reply.contents("output") if isinstance(output, values.Table)
        )
        address, hosts = values.format_key(KEY), bot.service.services.hosts
        await hosts.end_session(address, "It was let go.")
        busy = replies.Reply()
        turn_task = asyncio.create_task(bot.run("print(1)\nwhile True: pass", busy, key=other))
        await busy.until("output")
        for look in (
            read_page(bot, table),
            bot.service.save_table(KEY, table.handle, ANNA),
            bot.service.files.open_table(KEY, "none.csv", ANNA),
        ):
            with pytest.raises(errors.BotError, match="All your Python sessions are busy"):
                await look
        await bot.service.stop(other)
        await turn_task
        monkeypatch.setattr(live_data_views, "MAX_START_SECONDS", 60.0)
        assert (await read_page(bot, table)).row_count == 40
        assert set(hosts.pool.kernels) == {address}
