"""Files that code leaves to be collected: what they pretend to be, and what they change into."""

import os

import pytest

from interpreter_bot import errors, values
from tests import machine
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
MAX_BYTES = harness.MIB
# What it is: (code that makes it, in the workspace; its name).
REFUSED = {
    "a link to a host file": "os.symlink({host!r}, 'x')",
    "a relative link out": "os.symlink('../../../..' + {host!r}, 'x')",
    "a link to a file inside": "put('f', 'f', {create}); os.symlink('f', 'x')",
    "a link to itself": "os.symlink('x', 'x')",
    "a link to /proc": "os.symlink('/proc/self/environ', 'x')",
    "a link to a descriptor": "os.symlink('/proc/self/fd/0', 'x')",
    "a hard link": "put('f', 'f', {create}); os.link('f', 'x')",
    "a socket": "socket.socket(socket.AF_UNIX).bind('x')",
    "a directory": "os.mkdir('x')",
    "a large file": "put('x', 'x' * {size}, {create})",
    "a sparse file": "put('x', 'x', {create}); os.truncate('x', {size})",
    "nothing": "None",
}
LINKED_DIRECTORIES = {
    "to a host directory": "os.symlink({host!r}, 'd')",
    "to /proc": "os.symlink('/proc/self', 'd')",
    "to the root": "os.symlink('/', 'd')",
    "to itself": "os.symlink('.', 'd')",
    "upwards": "os.symlink('..', 'd')",
}


@pytest.mark.every_case
@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_no_plain_file_is_not_read(bot, run, files, what):
    expression = REFUSED[what].format(
        host=str(bot.canaries.public), create="os.O_WRONLY | os.O_CREAT", size=2 * MAX_BYTES
    )
    workspace = await files()
    mark = await workspace.mark_files()
    made = await run(harness.code(expression))
    if what == "a socket" and not machine.offers_namespaces():
        assert "PermissionError" in str(made.errors)
        return
    assert not made.errors

    with pytest.raises((errors.FileMissingError, errors.FileTooLargeError)):
        await harness.read_file(workspace, "x", max_bytes=MAX_BYTES)
    changes = await workspace.changes_since(mark)

    is_file = what in ("a large file", "a sparse file")
    assert ("x" in {file.name for file in changes.files}) == is_file
    assert ("x" in dict(changes.skipped)) == (
        not is_file and what not in ("a directory", "nothing")
    )


@pytest.mark.parametrize("kind", ["os.mkfifo('x')", "os.mknod('x', 0o600 | stat.S_IFIFO)"])
async def test_fifo_cannot_even_be_made(attempt, kind):
    assert await attempt(kind) == "EPERM"


async def test_fifo_that_is_there_all_the_same_keeps_nobody_waiting(run, files):
    workspace = await files()
    os.mkfifo(workspace.directory / "x")

    with pytest.raises(errors.FileMissingError):
        await harness.read_file(workspace, "x")
    assert await workspace.list() == ()


@pytest.mark.parametrize("where", LINKED_DIRECTORIES)
async def test_linked_directory_is_not_entered(bot, run, files, where):
    made = await run(
        harness.code(LINKED_DIRECTORIES[where].format(host=str(bot.canaries.public.parent)))
    )
    assert not made.errors

    workspace = await files()

    assert await workspace.list() == ()
    for name in ("d/public.txt", "d/environ", "d/etc/passwd", "d/d/f"):
        with pytest.raises(errors.FileMissingError):
            async with workspace.read(name):
                pass


async def test_file_swapped_for_a_link_never_shows_the_host(bot, run, files):
    host = str(bot.canaries.public)
    await run(
        harness.code(f"""
        def swap():
            while not os.path.exists("/tmp/over"):
                put("new", "harmless", os.O_WRONLY | os.O_CREAT)
                os.rename("new", "x")
                os.symlink({host!r}, "link")
                os.rename("link", "x")
                os.mkdir("d")
                put("d/public.txt", "harmless", os.O_WRONLY | os.O_CREAT)
                os.rename("d", "gone")
                os.symlink({os.path.dirname(host)!r}, "d")
                os.unlink("d"); os.unlink("gone/public.txt"); os.rmdir("gone")
        swapping = threading.Thread(target=swap)
        swapping.start()
        """)
    )
    workspace, seen = await files(), []

    for attempt in range(5000):
        # Long enough for both sides of the race to have been seen on a busy machine.
        if attempt >= 150 and {b"harmless", None} <= set(seen):
            break
        for name in ("x", "d/public.txt"):
            try:
                async with workspace.read(name) as content:
                    seen.append(b"".join([chunk async for chunk in content]))
            except errors.WorkspaceError:
                seen.append(None)
        await workspace.list()
    await run("open('/tmp/over', 'w').close(); swapping.join()")

    assert set(seen) <= {b"harmless", b"", None}
    assert b"harmless" in seen, "the race has to have been one"
    assert None in seen


async def test_file_that_grows_while_it_is_read_ends_all_the_same(run, files):
    await run(
        harness.code("""
        def grow():
            with open("x", "ab", 0) as file:
                while not os.path.exists("/tmp/over"):
                    file.write(b"x" * 4096)
                    time.sleep(0.0005)
        growing = threading.Thread(target=grow)
        growing.start()
        time.sleep(0.2)
        """)
    )
    workspace = await files()

    content = await harness.read_artifact(workspace, "x", max_bytes=harness.LIMITS.file_bytes)
    await run("open('/tmp/over', 'w').close(); growing.join()")

    assert 0 < len(content) <= harness.LIMITS.file_bytes
    assert set(content) == {ord("x")}


async def test_file_cut_while_it_is_read_ends_all_the_same(run, files):
    await run(harness.code("put('x', 'x' * 1_000_000, os.O_WRONLY | os.O_CREAT)"))
    workspace = await files()

    async with workspace.read("x") as content:
        await run("import os; os.truncate('x', 10)")
        got = b"".join([chunk async for chunk in content])

    assert len(got) <= 1_000_000


async def test_more_files_than_allowed_are_listed_in_part(bot, run, files):
    await run(
        harness.code("""
        for number in range(100_000):
            try: os.symlink("x", str(number))
            except BaseException: break
        """)
    )
    workspace = await files()

    changes = await workspace.changes_since(await workspace.mark_files())

    assert len(await workspace.list()) <= bot.limits.workspace_files
    assert changes.is_truncated
    assert len(changes.skipped) <= 100


@pytest.mark.parametrize("depth", [100, 400])
async def test_depth_is_bounded_and_can_be_removed(bot, run, files, session_key, depth):
    made = await run(
        harness.code(f"""
        for _ in range({depth}):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
        open("x", "w").close()
        os.chdir("/mnt/data")
        """)
    )
    # Too deep to be counted is stopped like too much, if somebody looks in time.
    assert made.ending in {values.Ending.OK, values.Ending.STOPPED}
    workspace = await files()
    path = workspace.directory

    assert await workspace.list() == ()
    await bot.pool.forget(session_key())

    assert not path.parent.exists()


async def test_files_closed_by_their_modes_can_still_be_removed(bot, run, files, session_key):
    await run("import os\nos.mkdir('d'); open('d/x', 'w').close(); os.chmod('d', 0)")
    path = (await files()).directory

    await bot.pool.forget(session_key())

    assert not path.parent.exists()


async def test_files_closed_by_their_modes_hide_nothing_and_are_in_nobodys_way(run, files):
    await run(
        "import os\n"
        "os.makedirs('d/e'); open('d/e/x', 'wb').write(bytes(100_000))\n"
        "open('y', 'w').write('y'); os.chmod('y', 0); os.chmod('d/e', 0); os.chmod('d', 0)"
    )
    workspace = await files()

    async def chunks():
        yield b"uploaded"

    usage = await workspace.usage()
    assert usage.bytes >= 100_000
    assert not usage.is_uncountable
    assert {info.name for info in await workspace.list()} >= {"y"}
    assert (await workspace.put("z", chunks())).name == "z"
    ran = await run("import os; print(open('z').read()); os.unlink('z'); os.unlink('y')")
    assert ran.word == "uploaded"


async def test_upload_does_not_follow_what_waits_under_its_name(bot, run, files):
    await run(f"import os; os.symlink({str(bot.canaries.database)!r}, 'report.csv')")

    async def chunks():
        yield b"uploaded"

    info = await (await files()).put("report.csv", chunks())

    assert info.name == "report (2).csv"
    assert bot.canaries.database.read_text() == bot.canaries.word
    assert (await run("print(open('report (2).csv').read())")).word == "uploaded"


async def test_workspace_itself_cannot_be_replaced(run):
    ran = await run(
        harness.code("""
        os.chdir("/")
        attempt(lambda: os.rename("/mnt/data", "/mnt/other"))
        attempt(lambda: os.rmdir("/mnt/data"))
        """)
    )

    assert set(ran.text.split()) <= {"EBUSY", "EROFS", "EACCES", "EPERM"}
