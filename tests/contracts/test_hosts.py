"""What every host promises to sessions: the one in this process, and whatever stands for another.

All cells share one host of each kind; each has sessions of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import socket
import time

import aiohttp
import pytest
import pytest_asyncio

from interpreter_bot import errors, settings, values
from interpreter_bot.hosts import (
    cancellable_executions,
    certificate_authorities,
    executions,
    host_addresses,
    host_lists,
    local_startup,
    placed_hosts,
    remote_host,
)
from interpreter_bot.kernel_host import host_server
from interpreter_bot.sessions import live_completions
from interpreter_bot.store import databases
from tests import machine
from tests.fakes import package_indexes

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]

_numbers = itertools.count(1)
PICTURE = """
import base64, hashlib, io, os, PIL.Image
from IPython.display import display
file = io.BytesIO()
PIL.Image.frombytes("RGB", (300, 300), os.urandom(270_000)).save(file, "png")
display({"image/png": base64.b64encode(file.getvalue()).decode()}, raw=True)
print(hashlib.sha256(file.getvalue()).hexdigest())
"""
TICKS = "import time\nfor i in range({}):\n    print(i, flush=True)\n    time.sleep({})"


@contextlib.asynccontextmanager
async def _local(config):
    async with local_startup.open_host(config) as host:
        yield host


@contextlib.asynccontextmanager
async def _remote(config):
    """A host behind its socket; that it is in the same process is nothing it could notice."""
    path = config.paths.data / "host.sock"
    async with (
        local_startup.open_host(config) as host,
        executions.Executions.open(config.paths.data / "journals") as begun,
        host_server.HostServer.open(host, begun, path),
        remote_host.RemoteHost.open(path) as remote,
    ):
        yield remote


@contextlib.asynccontextmanager
async def _placed(config):
    """A fleet of one host, over TLS."""
    data = config.paths.data
    authority = certificate_authorities.CertificateAuthority(data / "certificates")
    ours = authority.issue(["127.0.0.1"], is_bot=False, days=1)
    bots = authority.issue(["bot"], is_bot=True, days=1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    credentials = host_addresses.Credentials(ours, is_host=True)
    tls = host_addresses.TlsAddress("127.0.0.1", port, credentials=credentials)
    async with (
        local_startup.open_host(config) as host,
        executions.Executions.open(data / "journals") as begun,
        host_server.HostServer.open(host, begun, data / "host.sock", tls=tls),
        databases.Database.open(
            f"sqlite:///{data}/bot.db", blobs_directory=data / "kept"
        ) as database,
        placed_hosts.PlacedHosts.open(
            host_lists.Fleet([f"127.0.0.1:{port}"], bots), database.placements
        ) as hosts,
    ):
        yield hosts


@pytest.fixture(scope="module")
def index():
    with package_indexes.serving() as index:
        yield index


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[_local, _remote, pytest.param(_placed, marks=pytest.mark.slow)],
    ids=["local", "remote", "placed"],
)
async def hosts(request, index):
    with machine.short_directory() as place:
        config = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=1, idle_seconds=3600),
            limits=settings.Limits(upload_bytes=1000, workspace_files=50),
            package_index=settings.PackageIndex(url=index.url),
            paths=settings.Paths(data=place / "d", runtime=place / "r"),
        )
        async with request.param(config) as hosts:
            yield hosts


@pytest.fixture
def key():
    """A session that no other test uses."""
    return f"contract {next(_numbers)} / é"


class Heard:
    """What a follower hears."""

    def __init__(self):
        self.numbered = []
        self.changed = asyncio.Event()

    def __call__(self, output, number):
        self.numbered.append((output, number))
        self.changed.set()

    @property
    def text(self):
        return "".join(one.text for one, _ in self.numbered if isinstance(one, values.Text))

    async def until(self, text):
        async with asyncio.timeout(20):
            while text not in self.text:
                self.changed.clear()
                await self.changed.wait()


async def run(kernel, code, **more):
    """Run code; returns its end and what it printed."""
    heard = Heard()
    end = await kernel.execute(
        code, execution_id=cancellable_executions.new_id(), show=heard, **more
    )
    return end, heard.text


async def begun(kernel, code, ask=None):
    """Begin code and stop listening after its first output; returns its id and what was heard."""
    execution_id, heard = cancellable_executions.new_id(), Heard()
    executing = asyncio.create_task(
        kernel.execute(code, execution_id=execution_id, show=heard, ask=ask)
    )
    await heard.until("0\n")
    executing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await executing
    return execution_id, heard


async def chunks(*pieces):
    for piece in pieces:
        yield piece


async def content(workspace, name, **options):
    async with workspace.read(name, **options) as opened:
        return b"".join([chunk async for chunk in opened])


async def test_it_says_what_code_may_import_and_whether_there_are_walls(hosts):
    assert "numpy" in hosts.packages
    assert hosts.sandbox_level in ("full", "standard", "container")


async def test_packages_are_installed_and_offered_and_the_end_says_which(hosts, index, key):
    for name in ("letters", "greeter"):
        index.add(name)
    asked = []

    async def ask(request):
        asked.append(request.prompt)
        return values.YES

    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        _, text = await run(kernel, "kept = 7\n%pip install letters")
        assert "Installed letters 1.0" in text
        end, text = await run(
            kernel, "import greeter, letters; print(letters.version, kept)", ask=ask
        )
        assert text.endswith("Variables are kept.\n1.0 7\n"), text
        (layer,) = end.installed_layers
        assert layer.name
        assert layer.packages.startswith("greeter==1.0 --hash=sha256:")
        end, _ = await run(kernel, "kept")
        assert end.installed_layers == ()
    (offer,) = asked
    assert offer == "greeter is not installed. The package greeter has it."


async def test_what_is_installed_is_told_at_once_also_of_a_kernel_that_then_dies(hosts, index, key):
    index.add("farewell")
    code = "%pip install farewell\nimport os; input(); os._exit(1)"
    heard, before = Heard(), []

    async def ask(request):
        if not request.subject:
            before.extend(one for one, _ in heard.numbered)
        return values.YES

    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        execution_id = cancellable_executions.new_id()
        end = await kernel.execute(code, execution_id=execution_id, show=heard, ask=ask)
    assert end.finished.ending is values.Ending.CRASHED
    (layer,) = end.installed_layers
    assert layer.packages.startswith("farewell==1.0 --hash=sha256:")
    assert before.count(layer) == 1
    numbers = [number for _, number in heard.numbered]
    assert numbers == sorted(set(numbers))
    again = Heard()
    await hosts.follow(execution_id, show=again, ask=None)
    assert again.numbered == heard.numbered


async def test_all_leases_of_a_session_give_one_kernel_which_outlives_them(hosts, key):
    async with hosts.lease(key) as one, hosts.lease(key) as two:
        kernel = await one.kernel()
        assert kernel.id == (await two.kernel()).id
        await run(kernel, "kept = 5")
    async with hosts.lease(key, person="somebody") as lease:
        again = await lease.kernel()
        assert (again.id, again.loss_notice) == (kernel.id, "")
        assert (await run(again, "print(kept)"))[1] == "5\n"


async def test_an_end_says_what_is_defined_and_what_it_cost(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        code = "first = 1\nsecond = sum(range(3_000_000))"
        # As after 3,000 cells, each of which IPython keeps under a name.
        history = "get_ipython().push({f'_i{n}': '' for n in range(3000)}, interactive=False)"
        end, _ = await run(kernel, f"{code}\n{history}")
    assert end.finished.ending is values.Ending.OK
    assert (end.names, end.unlisted_count, end.loss_reason) == (("second", "first"), 0, "")
    assert 0 < end.cpu_seconds < 10


async def test_kernels_say_how_code_may_go_on_beside_what_people_run(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        await run(kernel, "class Shelf:\n    def grow(self, by=2): 'Grow.'\nshelf = Shelf()")
        await run(kernel, "count = get_ipython().execution_count")
        before = "# é\n" * 2000 + "shelf.grow("
        found = await live_completions.complete(hosts, kernel, before)
        assert (found.signature.label, found.signature.doc) == ("grow(by=2)", "Grow.")
        assert ("by=", "property", "") in found.options
        found = await live_completions.complete(hosts, kernel, "she")
        assert found.typed == 3
        assert found.options == (("shelf", "property", "Shelf"), ("Shelf", "class", "type"))
        assert (await live_completions.complete(hosts, kernel, "nothing.x")).options == ()
        # What answers no such question, or not with what was asked for, is told of.
        for broken in ("lambda *_: 1 / 0", "lambda *_: display({'application/json': 1}, raw=True)"):
            await run(kernel, f"get_ipython().answer_bot = {broken}")
            with pytest.raises(errors.BotError):
                await live_completions.complete(hosts, kernel, "she")
        _, counted = await run(kernel, "print(get_ipython().execution_count - count)")
        assert counted == "3\n"


async def test_displays_arrive_whole(hosts, key):
    heard = Heard()
    async with hosts.lease(key) as lease:
        await (await lease.kernel()).execute(
            PICTURE, execution_id=cancellable_executions.new_id(), show=heard
        )
    ((image, _), (printed, _)) = heard.numbered
    assert hashlib.sha256(image.data).hexdigest() == printed.text.strip()


async def test_a_lost_kernel_is_told_of_and_replaced(hosts, key):
    async with hosts.lease(key) as lease:
        former = await lease.kernel()
        end, _ = await run(former, "import os; os._exit(3)")
        assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)
        assert "exit code 3" in end.loss_reason
        status = (await hosts.statuses({key}))[key]
        assert (status.kernel_id, status.loss_reason) == (former.id, end.loss_reason)
        refused, _ = await run(former, "1")
        assert (refused.finished.ending, refused.finished.kernel_lost) == (
            values.Ending.REFUSED,
            True,
        )
        kernel = await lease.kernel()
        assert kernel.id != former.id
        assert end.loss_reason in kernel.loss_notice


async def test_losses_are_told_also_of_the_time_when_nobody_listened(hosts, key):
    told = []

    async def listen(loss):
        told.append(loss)

    async with hosts.lease(key) as lease:
        ids = []
        for _ in range(2):
            kernel = await lease.kernel()
            ids.append(kernel.id)
            await run(kernel, "import os; os._exit(3)")
            await lease.kernel()
            await hosts.subscribe_losses(listen)
        await hosts.subscribe_losses(None)
    mine = [loss for loss in told if loss.key == key]
    assert [loss.kernel_id for loss in mine] == ids
    assert "exit code 3" in mine[0].reason


async def test_an_execution_runs_on_unheard_and_is_followed_from_where_one_was(hosts, key):
    async with hosts.lease(key) as lease:
        execution_id, heard = await begun(await lease.kernel(), TICKS.format(6, 0.1))
    last = heard.numbered[-1][1]
    more, all_of_it = Heard(), Heard()
    end, again = await asyncio.gather(
        hosts.follow(execution_id, after=last, show=more, ask=None),
        hosts.follow(execution_id, show=all_of_it, ask=None),
    )
    assert end == again
    assert end.finished.ending is values.Ending.OK
    assert [*heard.numbered, *more.numbered] == all_of_it.numbered
    assert [number for _, number in all_of_it.numbered] == list(range(1, 7))
    assert all_of_it.text == "0\n1\n2\n3\n4\n5\n"
    late = Heard()
    assert await hosts.follow(execution_id, after=5, show=late, ask=None) == end
    assert late.text == "5\n"


async def test_the_same_id_again_is_the_same_execution(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        await run(kernel, "count = 0")
        execution_id = cancellable_executions.new_id()
        first, second = Heard(), Heard()
        code = "count += 1; print(count)"
        ends = [
            await kernel.execute(code, execution_id=execution_id, show=show)
            for show in (first, second)
        ]
        assert ends[0] == ends[1]
        assert (first.text, second.text) == ("1\n", "1\n")


async def test_what_is_acknowledged_or_never_was_cannot_be_followed(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        execution_id = cancellable_executions.new_id()
        await kernel.execute("1", execution_id=execution_id, show=Heard())
    hosts.acknowledge(execution_id)
    hosts.acknowledge(execution_id)

    async def until_missing():
        while True:
            await hosts.follow(execution_id, show=Heard(), ask=None)
            await asyncio.sleep(0.01)

    with pytest.raises(errors.ExecutionMissingError):
        await asyncio.wait_for(until_missing(), 30)
    with pytest.raises(errors.ExecutionMissingError):
        await hosts.follow("never", show=Heard(), ask=None)


async def test_stopping_ends_an_execution_and_keeps_the_variables(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        execution_id, _ = await begun(kernel, "kept = 7\n" + TICKS.format(1, 60))
        assert (await hosts.statuses({key}))[key].is_busy
        await hosts.stop(execution_id, "Enough.")
        await hosts.stop("never")
        end = await hosts.follow(execution_id, show=Heard(), ask=None)
        assert (end.finished.ending, end.finished.reason) == (values.Ending.STOPPED, "Enough.")
        assert not end.finished.kernel_lost
        assert (await run(kernel, "print(kept)"))[1] == "7\n"
        await hosts.stop(execution_id)


async def test_executions_wait_for_each_other_and_may_be_stopped_before_they_begin(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        first, _ = await begun(kernel, TICKS.format(3, 0.2))
        second = cancellable_executions.new_id()
        waiting = asyncio.create_task(
            kernel.execute("never = 1", execution_id=second, show=Heard())
        )
        third = asyncio.create_task(run(kernel, "print('never' in globals())"))
        await asyncio.sleep(0.05)
        await hosts.stop(second)
        assert (await waiting).finished.ending is values.Ending.STOPPED
        assert (await hosts.follow(first, show=Heard(), ask=None)).names == ("i", "time")
        assert (await third)[1] == "False\n"


async def test_a_run_that_is_cancelled_leaves_nothing_running(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        heard = Heard()
        running = asyncio.create_task(
            cancellable_executions.run(
                hosts, kernel, TICKS.format(1, 60), show=lambda output: heard(output, 0)
            )
        )
        await heard.until("0\n")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not (await hosts.statuses({key}))[key].is_busy


async def test_questions_are_answered_by_who_listens_then(hosts, key):
    asked = []

    async def silent(request):
        asked.append(request)
        await asyncio.Event().wait()

    async def answer(request):
        asked.append(request)
        return "Ada"

    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        code = "print(0, flush=True)\nprint('Hello', input('Who?'))"
        execution_id, heard = await begun(kernel, code, silent)
        more = Heard()
        end = await hosts.follow(execution_id, after=len(heard.numbered), show=more, ask=answer)
        assert end.finished.ending is values.Ending.OK
        assert more.text == "Hello Ada\n"
        assert asked[-1] == values.InputRequested("Who?", is_password=False, number=1)
        end, _ = await run(kernel, "input()")
        assert end.finished.ending is values.Ending.ERROR


async def test_a_question_comes_after_all_that_was_shown_before_it(hosts, key):
    heard, shown = Heard(), []

    async def answer(request):
        shown.append([one for one, _ in heard.numbered if not isinstance(one, values.Text)])
        return heard.text

    code = """for n in range(5):
    display({"text/plain": f"{n}" * 99_000, "image/png": "iVBORw0KGgo" + "A" * 399_989}, raw=True)
    print(n, end="")
    assert input() == "01234"[:n + 1]"""
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        id_ = cancellable_executions.new_id()
        end = await kernel.execute(code, execution_id=id_, show=heard, ask=answer)
    assert end.finished.ending is values.Ending.OK, heard.numbered[-1]
    assert [len(before) for before in shown] == [1, 2, 3, 4, 5]


async def test_a_question_that_is_refused_ends_the_code_with_that_sentence(hosts, key):
    async def refuse(request):
        raise errors.BotError("Nobody is here.")

    async with hosts.lease(key) as lease:
        end, _ = await run(await lease.kernel(), "input()", ask=refuse)
    assert (end.finished.ending, end.finished.reason) == (values.Ending.STOPPED, "Nobody is here.")


async def test_time_that_is_up_ends_code_though_nobody_listens(hosts, key):
    async with hosts.lease(key) as lease:
        execution_id, heard = cancellable_executions.new_id(), Heard()
        executing = asyncio.create_task(
            (await lease.kernel()).execute(
                TICKS.format(1, 60), execution_id=execution_id, show=heard, seconds=3
            )
        )
        await heard.until("0\n")
        executing.cancel()
    end = await hosts.follow(execution_id, show=Heard(), ask=None)
    assert end.finished.ending is values.Ending.TIMED_OUT


async def test_statuses_are_those_of_sessions_with_kernels(hosts, key):
    assert await hosts.statuses({key}) == {}
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        await run(kernel, "1")
    found = await hosts.statuses({key, "nobody"})
    assert found.keys() == {key}
    status = found[key]
    assert (status.kernel_id, status.is_busy, status.loss_reason) == (kernel.id, False, "")
    assert 0 <= status.idle_seconds < 30
    assert status.memory_bytes is None or status.memory_bytes > 0
    assert key in await hosts.statuses()


async def test_releasing_ends_the_kernel_and_forgetting_the_files_too(hosts, key):
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        await run(kernel, "open('made', 'w').write('x')")
    await hosts.release(key)
    assert await hosts.statuses({key}) == {}
    assert [info.name for info in await (await hosts.workspace(key)).list()] == ["made"]
    async with hosts.lease(key) as lease:
        again = await lease.kernel()
        assert (again.id != kernel.id, again.loss_notice) == (True, "")
    await hosts.forget(key)
    assert await hosts.statuses({key}) == {}
    assert await (await hosts.workspace(key)).list() == ()


async def test_a_session_is_saved_ended_for_a_reason_and_measured(hosts, key):
    if isinstance(hosts, placed_hosts.PlacedHosts):
        pytest.skip("an operator asks each host")
    assert await hosts.snapshot_sizes({key}) == {}
    assert not await hosts.save(key)
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        await run(kernel, "kept = b'x' * 100_000")
        assert await hosts.save(key)
        assert (await hosts.variables(key)).saved.names == ("kept",)
        await run(kernel, "later = 2")
    await hosts.end_session(key, "An operator ended it.")
    assert await hosts.statuses({key}) == {}
    [(found, size)] = (await hosts.snapshot_sizes({key, "nobody"})).items()
    assert (found, size.bytes > 100_000, abs(size.used_at - time.time()) < 60) == (key, True, True)
    async with hosts.lease(key) as lease:
        again = await lease.kernel()
        assert (await run(again, "print(len(kept), later)"))[1] == "100000 2\n"


async def test_files_come_whole_under_safe_names_and_are_never_replaced(hosts, key):
    workspace = await hosts.workspace(key)
    first = await workspace.put("../a b.csv", chunks(b"12", b"345"))
    second = await workspace.put("a b.csv", chunks(b"new"))
    assert (first.name, first.size_bytes, second.name) == ("a b.csv", 5, "a b (2).csv")
    assert await workspace.list() == (second, first)
    assert await content(workspace, first.name) == b"12345"
    assert await content(workspace, first.name, start=3) == b"45"
    assert await content(workspace, first.name, start=9) == b""
    async with workspace.read(first.name) as opened:
        assert opened.info == first


async def test_files_are_renamed_and_deleted_in_their_folder(hosts, key):
    workspace = await hosts.workspace(key)
    async with hosts.lease(key) as lease:
        made = "import os; os.mkdir('d'); open('d/x', 'w').write('1'); os.symlink('/etc', 'out')"
        await run(await lease.kernel(), made)
    await workspace.put("a.csv", chunks(b"12"))
    await workspace.put("b.csv", chunks(b"34"))
    with pytest.raises(errors.FileNameError, match="There is a"):
        await workspace.rename("a.csv", "b.csv")
    assert await workspace.rename("d/x", "../../y") == "d/y"
    assert await workspace.rename("a.csv", "é.csv") == "é.csv"
    assert await content(workspace, "é.csv") == b"12"
    for name in ("a.csv", "out/passwd", "out", "d", "../b.csv", ""):
        with pytest.raises(errors.FileMissingError):
            await workspace.delete(name)
        with pytest.raises(errors.FileMissingError):
            await workspace.rename(name, "z")
    await workspace.delete("b.csv")
    assert [one.name for one in await workspace.list()] == ["d/y", "é.csv"]


async def test_files_are_refused_for_reasons(hosts, key):
    workspace = await hosts.workspace(key)

    async def broken():
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(errors.FileTooLargeError, match="large is larger than"):
        await workspace.put("large", chunks(b"x" * 1001))
    with pytest.raises(ConnectionResetError):
        await workspace.put("broken", broken())
    assert await workspace.list() == ()
    for name in ("nothing", "../x", "\0", "\udc80"):
        with pytest.raises(errors.FileMissingError):
            await content(workspace, name)
    await workspace.put("small", chunks(b"x" * 100))
    with pytest.raises(errors.FileTooLargeError):
        await content(workspace, "small", max_bytes=99)


FAULTS = [
    OSError(errno.ENOSPC, "No space left on device"),
    aiohttp.ClientPayloadError("of another server"),
    ValueError("malformed"),
    KeyError("missing"),
    RecursionError("deep"),
    errors.KernelError("of another kernel"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_error_of_whoever_reads_or_sends_a_file_stays_what_it_is(hosts, key, fault):
    workspace = await hosts.workspace(key)
    await workspace.put("a", chunks(b"12"))

    async def fail_reading():
        async with workspace.read("a") as opened:
            async for _ in opened:
                raise fault

    with pytest.raises(type(fault)) as reading:
        await fail_reading()

    async def failing():
        yield b"1"
        raise fault

    with pytest.raises(type(fault)) as sending:
        await workspace.put("b", failing())
    assert reading.value is sending.value is fault
    assert [info.name for info in await workspace.list()] == ["a"]


@pytest.mark.parametrize("name", ["x" * 10_000, "é" * 100_000, "\udce9.csv", "a/" * 5000])
async def test_name_that_no_file_can_have_is_missing(hosts, key, name):
    workspace = await hosts.workspace(key)
    await workspace.put("first", chunks(b"12"))
    for work in (
        workspace.delete,
        lambda name: workspace.rename(name, "z"),
    ):
        with pytest.raises(errors.FileMissingError):
            await work(name)
    with pytest.raises(errors.FileMissingError):
        await content(workspace, name)
    assert len((await workspace.put(name, chunks(b"3"))).name.encode()) <= 255
    assert len(await workspace.rename("first", "y" + name.replace("/", "-"))) <= 255


async def test_a_file_of_holes_is_refused_where_that_is_wanted(hosts, key):
    async with hosts.lease(key) as lease:
        await run(await lease.kernel(), "open('holes', 'wb').truncate(3 << 20)")
    workspace = await hosts.workspace(key)
    assert len(await content(workspace, "holes")) == 3 << 20
    with pytest.raises(errors.FileTooLargeError):
        await content(workspace, "holes", may_be_sparse=False)


async def test_changes_are_what_came_since_a_mark(hosts, key):
    workspace = await hosts.workspace(key)
    await workspace.put("before", chunks(b"x"))
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        mark = await workspace.mark_files()
        await run(kernel, "import os\nopen('made', 'w').write('x'); os.symlink('/x', 'link')")
    changes = await (await hosts.workspace(key)).changes_since(mark)
    assert [info.name for info in changes.files] == ["made"]
    assert [name for name, _ in changes.skipped] == ["link"]
    assert not changes.is_truncated
    with pytest.raises(errors.WorkspaceError, match="no longer knows"):
        await workspace.changes_since("never")


async def test_disk_usage_is_told_by_session_and_of_all_others(hosts, key):
    before = await hosts.stored_bytes({key})
    assert before.by_key.keys() <= {key}
    await (await hosts.workspace(key)).put("a", chunks(b"x" * 1000))
    # What is saved of other sessions may become less between two looks, and of this one, too.
    async with asyncio.timeout(30):
        while True:
            mine = await hosts.stored_bytes({key, "nobody"})
            assert mine.by_key.keys() == {key}
            assert mine.by_key[key] >= 1000
            others = await hosts.stored_bytes(())
            assert others.by_key == {}
            if others.other_bytes >= mine.other_bytes + mine.by_key[key]:
                break
        async with hosts.lease(key) as lease:
            fill = f"open('{machine.session_variables_path()}/x', 'wb').write(bytes(1_000_000))"
            more = mine
            while more.by_key[key] < mine.by_key[key] + 1_000_000:
                await run(await lease.kernel(), fill)
                more = await hosts.stored_bytes({key})


async def test_a_session_goes_back_to_what_it_was_and_is_copied(hosts, key):
    with pytest.raises(errors.KernelError, match="nothing was changed"):
        await hosts.restore_checkpoint(key, "1")
    async with hosts.lease(key) as lease:
        await run(await lease.kernel(), "x = 1\nopen('f', 'w').write('old')")
    for _ in range(3000):
        await hosts.create_checkpoint(key, "0")
        try:
            await hosts.restore_checkpoint(key, "0")
            break
        except errors.KernelError:
            # It is not saved yet.
            await asyncio.sleep(0.02)
    async with hosts.lease(key) as lease:
        assert (await lease.kernel()).restored_variables.names == ("x",)
        await hosts.create_checkpoint(key, "1")
        await run(await lease.kernel(), "x = 2\nopen('g', 'w').close()")
        saved = await hosts.restore_checkpoint(key, "1")
        assert saved.saved.names == ("x",)
        show = "import os; print(x, os.listdir(), open('f').read())"
        assert (await run(await lease.kernel(), show))[1] == "1 ['f'] old\n"
    for name in ("1", "../1"):
        with pytest.raises(errors.KernelError, match="nothing was changed"):
            await hosts.restore_checkpoint(key, name)
    await hosts.fork(key, copy := f"{key} copy")
    async with hosts.lease(copy) as lease:
        changed = f"{show}; x = 3; open('f', 'w').write('new')"
        assert (await run(await lease.kernel(), changed))[1] == "1 ['f'] old\n"
    with pytest.raises(errors.KernelError, match="already"):
        await hosts.fork(key, copy)
    async with hosts.lease(key) as lease:
        assert (await run(await lease.kernel(), show))[1] == "1 ['f'] old\n"


@pytest.mark.parametrize("opened", [_local, _remote], ids=["local", "remote"])
async def test_a_kernel_begins_with_the_variables_of_the_former_one_and_says_so(opened):
    with machine.short_directory() as place:
        config = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=0.2),
            snapshots=settings.Snapshots(),
            paths=settings.Paths(data=place / "d", runtime=place / "r"),
        )
        async with opened(config) as hosts:
            assert hosts.keeps_variables
            async with hosts.lease("a") as lease:
                former = await lease.kernel()
                assert (former.run_count, former.restored_variables, former.restore_notice) == (
                    0,
                    None,
                    "",
                )
                end, _ = await run(former, "x = [1]\ny = iter(x)\nz = (i for i in x)")
                assert end.run_count == former.run_count == 1
            for _ in range(3000):
                held = await hosts.variables("a")
                if held.saved is not None:
                    break
                await asyncio.sleep(0.01)
            assert held.names == ("z", "y", "x")
            assert (held.saved.kernel_id, held.saved.run_count, held.saved.kept_count) == (
                former.id,
                1,
                2,
            )
            async with hosts.lease("a") as lease:
                await run(await lease.kernel(), "import os; os._exit(3)")
                kernel = await lease.kernel()
                assert kernel.restored_variables == held.saved
                assert kernel.run_count == 0
                end, _ = await run(kernel, "x[0] / 0 if x != [1] else None")
                assert end.finished.ending is values.Ending.OK


async def test_the_bots_own_code_is_no_cell_and_counts_as_no_run(hosts, key):
    number = "print(get_ipython().execution_count)"
    async with hosts.lease(key) as lease:
        kernel = await lease.kernel()
        before, first = await run(kernel, number)
        own, _ = await run(kernel, "x = 1", is_bot_code=True)
        after, second = await run(kernel, number)
    assert int(second) == int(first) + 1
    assert (own.run_count, after.run_count) == (before.run_count, before.run_count + 1)
