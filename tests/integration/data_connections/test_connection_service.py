"""Code in real kernels asks for data: what it gets, what is recorded, and what stays shut."""

import asyncio
import contextlib
import functools
import http.server
import os
import pathlib
import tempfile
import threading

import pytest
import pytest_asyncio

from interpreter_bot import settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.data_connections import connection_service
from interpreter_bot.egress import services_door
from interpreter_bot.hosts import cancellable_executions
from tests.integration.data_connections.conftest import PASSWORD
from tests.integration.egress import test_proxies

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.asyncio(loop_scope="module"),
]

HERE = values.SessionKey("web", thread="here")
ELSEWHERE = values.SessionKey("slack", "T1", "C1", "1.2")


class Place:
    """Two connections: one for all, one for one person of the page."""

    def __init__(self, host, broker):
        self.host = host
        self.broker = broker
        (self.service,) = broker.services
        self.queries = []
        self.asked = asyncio.Event()
        self.service.on_query = self._take

    def _take(self, query):
        self.queries.append(query)
        self.asked.set()

    async def run(self, code, key=HERE, person="U1", execution_id=None):
        shown = []
        self.service.note_person(values.format_key(key), person)
        async with self.host.lease(values.format_key(key)) as lease:
            await cancellable_executions.run(
                self.host,
                await lease.kernel(),
                code,
                show=shown.append,
                execution_id=execution_id or cancellable_executions.new_id(),
            )
        return "".join(one.plain for one in shown).strip()


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """The address of a place of files."""
    directory = tmp_path_factory.mktemp("lake")
    (directory / "may").mkdir()
    (directory / "may" / "report.csv").write_text("a\n1\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(sqlite_file, postgresql, lake):
    async with contextlib.AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp"))
        os.chmod(name, 0o755)
        config = settings.Settings(
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=0),
            limits=settings.Limits(execution_seconds=60),
            connections=(
                settings.Connection(name="sales", kind="sqlite", address=str(sqlite_file)),
                settings.Connection(
                    name="secret",
                    kind="postgresql",
                    address="${SECRET_DSN}",
                    description="What few may see",
                    places=("web",),
                    people=("U1",),
                ),
                settings.Connection(
                    name="lake", kind="files", address=lake, places=("web",), people=("U1",)
                ),
            ),
            connection_limits=settings.ConnectionLimits(bytes=16_384),
        )
        dsn = {"SECRET_DSN": postgresql.reader}
        broker = await stack.enter_async_context(execution_startup.open_broker(config, dsn))
        opening = execution_startup.open_hosts(config, doorkeeper=broker)
        host = await stack.enter_async_context(opening)
        opened = Place(host, broker)
        opened.service.open_workspace = host.workspace
        await opened.service.pool.prepare()
        yield opened


async def test_a_query_gives_a_data_frame_and_is_recorded(place):
    told = await place.run(
        "import datetime\n"
        "frame = connections['secret'].query('select region, sum(amount) total, max(day) last, "
        "min(amount) least from orders where day >= :d group by 1 order by 1',"
        " {'d': datetime.date(2026, 5, 10)})\n"
        "print(list(frame.region), frame.total.dtype, frame['last'].dt.month.max())"
    )
    assert told == "['north', 'south'] float64 5"
    query = place.queries[-1]
    assert (query.connection, query.person, query.rows) == ("secret", "U1", 2)
    assert "2026" not in query.statement


async def test_tables_and_columns_are_described_to_code_and_model(place):
    told = await place.run(
        "print(connections, *connections['sales'].tables().name,"
        " *connections['secret'].schema('orders').column)"
    )
    assert told.splitlines()[-1].endswith("orders id day region amount")
    offers = {one.name: one for one in place.broker.reach(values.format_key(HERE)).offers}
    assert offers["secret"].description == "PostgreSQL: What few may see"
    assert "orders(id integer, day date" in offers["secret"].model_details
    assert "about 1,000 rows: What was sold." in offers["secret"].model_details


async def test_a_cut_result_has_a_notice(place):
    told = await place.run("print(len(connections['sales'].query('select * from orders')))")
    row_count = place.queries[-1].rows
    assert 0 < row_count < 1000
    assert f"sales: cut after {row_count} rows" in told
    assert str(row_count) in told.splitlines()
    assert place.queries[-1].reason.startswith("cut after")


async def test_a_file_is_put_into_the_workspace_and_recorded(place):
    told = await place.run(
        "path = connections['lake'].get('may/report.csv')\n"
        "print(path, open(path).read().split())\n"
        "connections['lake'].get('may/none.csv')"
    )
    assert told.startswith("/mnt/data/report.csv ['a', '1']")
    assert "There is no file 'may/none.csv'." in told
    got, missing = place.queries[-2:]
    assert (got.connection, got.statement, got.sent_bytes) == ("lake", "get may/report.csv", 4)
    assert "no file" in missing.reason


async def test_an_error_has_the_message_of_the_database(place):
    told = await place.run("connections['secret'].query('select nothing from orders')")
    assert 'connections.QueryError: column "nothing" does not exist' in told
    assert "data_connection_objects" not in told
    assert "pyarrow" not in told


async def test_a_connection_is_hidden_from_people_who_may_not_use_it(place):
    ask = "print(list(connections)); connections['secret'].query('select 1')"
    raw = (
        "import http.client, os\n"
        "there = http.client.HTTPConnection('127.0.0.1', 61081)\n"
        "there.request('POST', '/connections/secret/query', '{\"sql\": \"select 1\"}')\n"
        "print(there.getresponse().status)"
    )
    for key, person in ((HERE, "U2"), (ELSEWHERE, "U1")):
        told = await place.run(ask, key, person)
        assert told.startswith("['sales']")
        assert "there are: sales" in told
        assert await place.run(raw, key, person) == "404"
    await place.run("1", HERE, "U1")


async def test_no_secret_of_a_connection_is_in_the_kernel(place):
    told = await place.run(
        "connections['secret'].query('select 1')\n"
        "import gc, os, sys\n"
        f"word = {PASSWORD[:8]!r} + {PASSWORD[8:]!r}\n"
        "found = [str(v) for v in os.environ.values() if word in v]\n"
        "found += [repr(o)[:50] for o in gc.get_objects() if isinstance(o, dict)"
        " and any(isinstance(v, str) and word in v for v in list(o.values())"
        " if v is not word)]\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for name in ('environ', 'cmdline'):\n"
        "        try:\n"
        "            found += [pid] if word in open(f'/proc/{pid}/{name}').read() else []\n"
        "        except OSError:\n"
        "            pass\n"
        "print(found)"
    )
    assert told == "[]"
    assert PASSWORD not in repr(place.broker.reach(values.format_key(HERE)))
    assert PASSWORD not in repr(place.queries)


async def test_stop_cancels_on_the_server(place, postgresql):
    running = (
        "select count(*) from pg_stat_activity where state = 'active' "
        "and query like '%pg_sleep(40)%' and pid <> pg_backend_pid()"
    )
    code = "connections['secret'].query('select pg_sleep(40)')"
    stopped = cancellable_executions.new_id()
    task = asyncio.create_task(place.run(code, execution_id=stopped))
    await asyncio.to_thread(postgresql.wait, running, "1")
    await place.host.stop(stopped)
    await task
    await asyncio.to_thread(postgresql.wait, running, "0")
    assert await place.run("print(len(connections['secret'].query('select 1')))") == "1"


@pytest.mark.slow
async def test_a_flood_of_one_session_leaves_room_for_others(place):
    flood = (
        "import concurrent.futures\n"
        "def ask(i):\n"
        "    return len(connections['sales'].query('with recursive x(i) as (select 1 union all"
        " select i + 1 from x where i < 200000) select count(*) from x'))\n"
        "with concurrent.futures.ThreadPoolExecutor(40) as pool:\n"
        "    print(sum(pool.map(ask, range(60))))"
    )
    first = asyncio.create_task(place.run(flood))
    place.asked.clear()
    await asyncio.wait_for(place.asked.wait(), 30)
    other = await place.run("print(len(connections['sales'].query('select 1')))", ELSEWHERE)
    assert other == "1"
    assert await first == "60"


async def test_all_requests_count_and_too_many_are_refused(sqlite_file):
    config = settings.Settings(
        connections=(settings.Connection(name="sales", kind="sqlite", address=str(sqlite_file)),),
    )
    ask = "POST /connections/{} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}"
    async with connection_service.open_service(config, {}, max_hourly_calls=3) as service:
        kind = functools.partial(services_door.ServicesDoor, services=[service])
        async with test_proxies.door(kind=kind) as door:
            paths = ("", "sales/tables", "sales/tables", "", "sales/query")
            told = [await door.ask(ask.format(path).encode()) for path in paths]
    assert [one.split()[1] for one in told] == ["200", "200", "200", "429", "429"]
    assert '"name": "orders"' in told[1]


async def test_invalid_requests_are_refused(place):
    told = await place.run(
        "import http.client\n"
        "for body in (b'', b'[]', b'{\"sql\": 1}', b'{\"what\": 1}', b'x' * 2_000_000):\n"
        "    there = http.client.HTTPConnection('127.0.0.1', 61081)\n"
        "    try:\n"
        "        there.request('POST', '/connections/sales/query', body)\n"
        "        print(there.getresponse().status)\n"
        "    except OSError:\n"
        "        print(413)\n"
    )
    assert told.split() == ["400", "400", "400", "400", "413"]


async def test_people_of_a_session_are_forgotten_if_another_bot_may_have_had_its_doors(place):
    key = values.format_key(values.SessionKey("web", thread="moved"))

    def names():
        return [offer.name for offer in place.service.offers(key)]

    place.service.note_person(key, "U1")
    place.service.note_opened(key)
    assert "secret" in names(), "its turn runs here"
    place.service.turns.end(key)
    assert "secret" in names(), "what its code left running goes on"
    place.service.note_opened(key)
    assert ("sales" in names(), "secret" in names()) == (True, False)
