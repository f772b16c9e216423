"""What code reaches from machines of a fleet: two hosts over TLS, and the bot's rules for each."""

import asyncio
import contextlib
import hashlib
import os
import pathlib
import sqlite3
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import settings, values
from interpreter_bot.app import execution_startup, service_startup
from interpreter_bot.data_connections import connection_service
from interpreter_bot.egress import broker
from interpreter_bot.hosts import (
    certificate_authorities,
    door_streams,
    host_lists,
    placed_hosts,
)
from interpreter_bot.sessions import requests
from tests import futures, waiting
from tests.acceptance import test_fleet
from tests.fakes import external_servers, package_indexes, replies, tool_servers
from tests.integration.sessions import test_tool_calls

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.namespaces,
    pytest.mark.asyncio(loop_scope="module"),
]

LOST_SECONDS = 1.0
PAGE = bytes(range(256)) * 64 * 1024
KEYS = [values.format_key(values.SessionKey("web", thread=name)) for name in "abcd"]
GET = """
import requests
try:
    print(requests.get('https://{host}.example.org:{port}/x', verify='ca.pem').text)
except OSError as error:
    print(error)
"""


TOOLS = """
%pip install letters
from tools.jira import search_issues
import letters
print(search_issues(query=KEY), letters.version)
"""


class Fleet:
    """Two machines, what is outside, and bots that come and go."""

    def __init__(self, config, machines, outer):
        self.config, self.machines, self.outside = config, machines, outer
        self.contacts = []

    @contextlib.asynccontextmanager
    async def bot(self, *, hosts=2, has_rules=True):
        count, resolve = hosts, external_servers.make_resolver(["127.0.0.1"])
        async with (
            connection_service.open_service(self.config, {}) as data,
            broker.open_broker(
                self.config, {}, services=[data], seed=b"seed", resolve=resolve
            ) as keeper,
            execution_startup.open_database(self.config, takes_orphans=False) as database,
            placed_hosts.PlacedHosts.open(
                host_lists.Fleet(self.config.host.fleet, self.config.host.tls),
                database.placements,
                lost_seconds=LOST_SECONDS,
                doorkeeper=keeper if has_rules else None,
            ) as hosts,
        ):
            keeper.on_contact = self.contacts.append
            await waiting.until(lambda: len(test_fleet.connected(hosts)) == count)
            hosts.keeper, hosts.database = keeper, database
            yield hosts

    async def place(self, hosts, key, machine):
        """Have a session on a machine, with the authority of what is outside."""
        await hosts.database.placements.put(
            key, self.host(hosts, machine).status.data_id, former_epoch=0
        )
        await self.run(
            hosts, key, f"open('ca.pem', 'w').write({self.outside.authority.certificate!r})"
        )

    def host(self, hosts, machine):
        return next(
            one.connection for one in hosts.hosts if one.connection.address.port == machine.port
        )

    async def run(self, hosts, key, code):
        return await test_fleet.ran(hosts, key, code)

    async def get(self, hosts, key, host="data"):
        return await self.run(hosts, key, GET.format(host=host, port=self.outside.port))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet():
    async with contextlib.AsyncExitStack() as stack:
        index = stack.enter_context(package_indexes.serving())
        index.add("letters")
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp"))
        os.chmod(name, 0o755)
        yield await stack.enter_async_context(_fleet(pathlib.Path(name), index))


@contextlib.asynccontextmanager
async def _fleet(place, index):
    authority = certificate_authorities.CertificateAuthority(place / "ca")
    shown = authority.issue(["127.0.0.1"], is_bot=False, days=1)
    machines = [
        test_fleet.Machine(place / name, place / f"r{name}", shown, doors=True, index=index.url)
        for name in "ab"
    ]
    sqlite3.connect(place / "sales.db").close()
    async with external_servers.ExternalServer.open("data.example.org", _answer) as outer:
        try:
            for one in machines:
                await asyncio.to_thread(one.start)
            config = settings.Settings(
                paths=settings.Paths(data=place / "bot", runtime=place / "rbot"),
                host=settings.Host(
                    fleet=tuple(one.address for one in machines),
                    tls=authority.issue(["bot"], is_bot=True, days=1),
                ),
                connections=(
                    settings.Connection(
                        name="sales", kind="sqlite", address=str(place / "sales.db")
                    ),
                ),
                egress=(
                    settings.Egress(
                        host="data.example.org",
                        ports=(outer.port,),
                        addresses=("127.0.0.1",),
                    ),
                ),
            )
            yield Fleet(config, machines, outer)
        finally:
            for one in machines:
                await asyncio.to_thread(one.end)


def kept(hosts):
    """Whose doors a bot has."""
    return list(hosts.keeper._open_approvals.values())


def _answer(head):
    return external_servers.make_response(PAGE if head.startswith("GET /page") else b"outside")


async def test_code_on_each_machine_reaches_what_is_listed_as_its_own_session(fleet):
    async with fleet.bot() as hosts:
        for key, machine in zip(KEYS[:2], fleet.machines, strict=True):
            await fleet.place(hosts, key, machine)
            assert hosts.reach(key).hosts
        assert await asyncio.gather(*(fleet.get(hosts, key) for key in KEYS[:2])) == ["outside"] * 2
        # Each is told of once its connection is over.
        await waiting.until(lambda: {one.key for one in fleet.contacts} == set(KEYS[:2]))
        assert "outside" not in (told := await fleet.get(hosts, KEYS[0], host="other"))
        assert "403" in told or "not" in told
        # Many at once, and large: each has a stream of its own.
        code = f"""
import concurrent.futures, hashlib, requests
address = 'https://data.example.org:{fleet.outside.port}/page'
def get(_):
    return hashlib.sha256(requests.get(address, verify='ca.pem').content).hexdigest()
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    print(*set(threads.map(get, range(8))))
print(requests.post(address, data=b'x' * 5_000_000, verify='ca.pem').text)
"""
        told = await fleet.run(hosts, KEYS[1], code)
        assert told.split() == [hashlib.sha256(PAGE).hexdigest(), "outside"]
        assert len(fleet.outside.bodies[-1]) == 5_000_000


async def test_who_reads_slowly_is_not_cut_off(fleet, monkeypatch):
    monkeypatch.setattr(door_streams, "HEARTBEAT_SECONDS", 0.5)
    code = f"""
import hashlib, requests, time
address = 'https://data.example.org:{fleet.outside.port}/page'
with requests.get(address, verify='ca.pem', stream=True) as response:
    pieces = response.iter_content(65536)
    first = next(pieces)
    time.sleep(3)
    print(hashlib.sha256(first + b''.join(pieces)).hexdigest())
"""
    async with fleet.bot() as hosts:
        await fleet.place(hosts, KEYS[0], fleet.machines[0])
        assert await fleet.run(hosts, KEYS[0], code) == hashlib.sha256(PAGE).hexdigest()


async def test_the_next_bot_has_the_doors_and_none_is_there_between(fleet):
    key, machine = KEYS[2], fleet.machines[0]
    async with fleet.bot() as hosts:
        await fleet.place(hosts, key, machine)
        assert await fleet.get(hosts, key) == "outside"
    # As a command that looks has no rules, and takes over nothing.
    async with test_fleet.opened(fleet.config) as (hosts, _):
        assert "is not there right now" in await fleet.get(hosts, key)
    async with fleet.bot() as hosts:
        await waiting.until(lambda: any(one[0] == key for one in kept(hosts)))
        assert await fleet.get(hosts, key) == "outside"
        await hosts.forget(key)
        await waiting.until(lambda: all(one[0] != key for one in kept(hosts)))


async def test_a_host_speaks_for_no_session_that_is_elsewhere(fleet):
    key, (first, second) = KEYS[3], fleet.machines
    async with fleet.bot() as hosts:
        await fleet.place(hosts, key, first)
        assert await fleet.get(hosts, key) == "outside"
        # Its code goes on asking, as that of a host does which was cut off from the database.
        code = (
            "import threading, requests\n"
            "def ask():\n"
            "    while True:\n"
            "        try:\n"
            f"            requests.get('https://data.example.org:{fleet.outside.port}/late',"
            " verify='ca.pem')\n"
            "        except OSError: pass\n"
            "threading.Thread(target=ask, daemon=True).start()"
        )
        await fleet.run(hosts, key, code)
        await waiting.until(lambda: any("/late" in head for head in fleet.outside.heads))
        moved = fleet.host(hosts, second).status.data_id
        await hosts.database.placements.put(key, moved, former_epoch=1)
        await waiting.until(lambda: key not in [one[0] for one in kept(hosts)])
        former = next(one for one in hosts.hosts if one.connection.status.data_id != moved)
        # Nor does the bot take them over, though that host says that nobody has them.
        unheld = await former.unleased_doors()
        (kernel_id,) = [kernel_id for kernel_id, whose in unheld.items() if whose == key]
        await former._doors._open_unleased(kernel_id, key)
        assert key not in [one[0] for one in kept(hosts)]


async def test_data_connections_answer_on_each_machine(fleet):
    async with fleet.bot() as hosts:
        for key in KEYS[:2]:
            told = await fleet.run(
                hosts, key, "print(connections['sales'].query('select 6 * 7 as a').a[0])"
            )
            assert told == "42"


async def test_packages_are_installed_and_tools_called_on_each_machine(fleet):
    async def answer(context, name, arguments):
        return {"result": arguments["query"]}

    jira = tool_servers.ToolServer(test_tool_calls.SEARCH)
    jira.answer = answer
    async with jira.serving(), fleet.bot() as hosts:
        entry = settings.McpServer(name="jira", url=jira.url, approval="never")
        config = fleet.config.model_copy(update={"mcp_servers": (entry,)})
        await test_tool_calls.accept(config.paths.data, entry)
        async with service_startup.open_conversations(
            config, {}, secrets={}, hosts=futures.completed_future(hosts)
        ) as service:
            for key in KEYS[:2]:
                text, reply = TOOLS.replace("KEY", repr(key)), replies.Reply()
                asked = requests.Request(
                    key=values.parse_key(key),
                    person=requests.Person("you"),
                    text=text,
                    is_code=True,
                )
                await service.handle(asked, reply)
                told = "".join(one.plain for one in reply.contents("output"))
                assert told.splitlines()[-1] == f"{key} 1.0"


async def test_a_host_without_doors_or_on_a_copied_data_directory_is_refused(fleet):
    first, second = fleet.machines
    async with fleet.bot() as hosts:
        second.end()
        second.without_doors()
        (second.data / "host.id").write_bytes((first.data / "host.id").read_bytes())
        second.start()
        # Also one that was another one when it was here before.
        await waiting.until(lambda: "INTERPRETER_BOT" in "".join(hosts.faults.values()))
        (told,) = hosts.faults.values()
        assert "Start it with INTERPRETER_BOT_KERNELS__DOORS=true" in told
    async with fleet.bot(hosts=1, has_rules=False) as hosts:
        (told,) = hosts.faults.values()
        # Either may be the copy: which one was connected first says nothing.
        assert all(machine.address in told for machine in fleet.machines)
        assert "is a copy of the other" in told
        assert await fleet.run(hosts, "s", "print(1)") == "1"
