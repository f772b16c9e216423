"""A workspace keeps what it is given, gives what it holds, and stays within its limits."""

import asyncio
import hashlib
import os
import re
import stat
import threading
import time
import tracemalloc
import unicodedata

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels.files import workspace_io, workspaces
from interpreter_bot.text import file_names

KIB, MIB = settings.KIB, settings.MIB
LIMITS = settings.Limits(workspace_bytes=4 * MIB, workspace_files=20, upload_bytes=2 * MIB)
HOSTILE = [
    "../../x", "/etc/passwd", "..\\..\\boot.ini", "日" * 300 + ".csv", "a\u202efdp.exe",
    "a\x00b\nc\x1b[1m", "CON", "nul.txt", "...", "-rf", ".bashrc", "", "   ", "a/", "\ud800",
    "a\u2215b\uff0fc", "~root", "a.tar.gz", "x" * 300 + ".tar.gz", "\u200b", "a" * 300, "con  .txt",
    "con" + " ." * 200 + ".txt", "<@U1>|*.csv", "e\u0301.txt", "a." + "b" * 300, "\\x0a",
]  # fmt: skip


async def _chunks(*chunks):
    for chunk in chunks:
        yield chunk


@pytest.fixture
async def all_of_them(tmp_path):
    return workspaces.Workspaces(tmp_path / "workspaces", LIMITS)


@pytest.fixture
async def workspace(all_of_them):
    return await all_of_them.ensure("slack:T1:C1:1.1")


def _left_behind(workspace):
    staging = workspace.directory.parent / workspace_io.STAGING
    return os.listdir(workspace.directory), os.listdir(staging) if staging.exists() else []


async def _bytes(workspace, name, **options):
    async with workspace.read(name, **options) as content:
        return b"".join([chunk async for chunk in content])


def _check_name(name):
    safe = file_names.safe_name(name)
    assert safe
    assert len(safe.encode()) <= file_names.MAX_NAME_BYTES
    assert safe.isprintable()
    assert not re.search(r"[/\\]", safe)
    assert safe not in (".", "..")
    assert safe[0] not in ".-~ "
    assert unicodedata.is_normalized("NFC", safe)
    assert file_names.safe_name(safe) == safe
    return safe


@hypothesis.given(st.text() | st.text(alphabet=" .-~/\\con1ab\u0301\u202e日", max_size=300))
def test_safe_name_is_one_harmless_component_and_stays_itself(name):
    _check_name(name)


@pytest.mark.parametrize("name", HOSTILE)
def test_safe_name_of_hostile_names(name):
    _check_name(name)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../x", "x"), ("C:\\Users\\me\\data.csv", "data.csv"), ("", "file"), ("...", "file"),
        (".env", "env"), ("CON", "_CON"), ("a\nb.csv", "a b.csv"), ("Umsätze (1).csv",) * 2,
        ("e\u0301.txt", "é.txt"), ("a\u202eb.csv", "ab.csv"), ("a\u2215b", "a_b"), ("a/", "a"),
        ("x" * 300 + ".tar.gz", "x" * 193 + ".tar.gz"), ("日" * 300 + ".csv", "日" * 65 + ".csv"),
    ],
)  # fmt: skip
def test_safe_name_keeps_what_it_can(name, safe):
    assert file_names.safe_name(name) == safe


@pytest.mark.parametrize("name", HOSTILE)
async def test_upload_of_any_name_lands_inside_and_is_listed_under_its_name(workspace, name):
    info = await workspace.put(name, _chunks(b"1,", b"", b"2"))
    assert await workspace.list() == (info,)
    assert await _bytes(workspace, info.name) == b"1,2"
    assert _left_behind(workspace) == ([info.name], [])
    assert stat.S_IMODE((workspace.directory / info.name).stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_upload_belongs_to_whom_the_workspace_belongs(workspace):
    os.chown(workspace.directory, 1_600_000_000, 1_600_000_001)
    await workspace.put("a", _chunks(b"x"))
    status = (workspace.directory / "a").stat()
    assert (status.st_uid, status.st_gid) == (1_600_000_000, 1_600_000_001)


async def test_uploads_of_one_name_all_survive(workspace):
    (workspace.directory / "data.csv").symlink_to("../../secret")
    infos = await asyncio.gather(
        *(workspace.put("data.csv", _chunks(b"%d" % number)) for number in range(8))
    )
    assert {info.name for info in infos} == {f"data ({number}).csv" for number in range(2, 10)}
    for number, info in enumerate(infos):
        assert await _bytes(workspace, info.name) == b"%d" % number


@pytest.mark.parametrize("call", ["renameat2 without NOREPLACE", "no renameat2"])
async def test_upload_works_where_renameat2_does_not(workspace, monkeypatch, call):
    from interpreter_bot.kernels.files import safe_open

    class Libc:
        if call != "no renameat2":

            def renameat2(self, *_):
                return -1

    monkeypatch.setattr(safe_open, "_libc", Libc)
    monkeypatch.setattr(safe_open.ctypes, "get_errno", lambda: 22)
    monkeypatch.setattr(
        safe_open,
        "_openat2",
        lambda root, path, flags: safe_open._open_by_component(root, path, flags),
    )
    assert [(await workspace.put("a", _chunks(b"x"))).name for _ in range(2)] == ["a", "a (2)"]
    assert _left_behind(workspace)[1] == []
    assert await _bytes(workspace, "a (2)") == b"x"


async def test_upload_over_its_limit_is_refused_and_leaves_nothing(workspace):
    with pytest.raises(errors.FileTooLargeError, match=r"big\.bin is larger than the 2 MiB"):
        await workspace.put("big.bin", _chunks(b"x" * 2 * MIB, b"x"))
    assert _left_behind(workspace) == ([], [])
    assert (await workspace.put("big.bin", _chunks(b"x" * 2 * MIB))).size_bytes == 2 * MIB


async def test_full_workspace_refuses_uploads_and_leaves_nothing(workspace):
    for name in "ab":
        await workspace.put(name, _chunks(b"x" * (2 * MIB - 4 * KIB)))
    with pytest.raises(errors.WorkspaceFullError, match="/mnt/data holds 4 MiB"):
        await workspace.put("c", _chunks(b"x" * MIB))
    names, staged = _left_behind(workspace)
    assert (sorted(names), staged) == (["a", "b"], [])


async def test_uploads_at_once_do_not_exceed_the_workspace_together(workspace):
    done = await asyncio.gather(
        *(workspace.put("x", _chunks(*[b"x" * 512 * KIB] * 3)) for _ in range(6)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, errors.WorkspaceFullError) for one in done) == 4
    assert (await workspace.usage()).bytes == 3 * MIB


async def test_workspace_of_too_many_files_refuses_uploads(workspace):
    for number in range(19):
        (workspace.directory / f"d{number}").mkdir()
    await workspace.put("last", _chunks(b""))
    with pytest.raises(errors.WorkspaceFullError, match="20 files"):
        await workspace.put("more", _chunks(b""))
    assert _left_behind(workspace)[1] == []


async def test_cancelled_upload_leaves_nothing(workspace):
    arrived = asyncio.Event()

    async def slow():
        yield b"half"
        arrived.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(workspace.put("a", slow()))
    await arrived.wait()
    assert _left_behind(workspace)[0] == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _left_behind(workspace) == ([], [])


async def test_upload_cancelled_at_any_moment_is_whole_or_absent(workspace):
    for delay in range(30):
        task = asyncio.create_task(workspace.put("a", _chunks(*[b"x" * 64 * KIB] * 8)))
        await asyncio.sleep(delay / 5000)
        task.cancel()
        task.cancel()
        await asyncio.wait({task})
        assert all(info.size_bytes == 512 * KIB for info in await workspace.list())
        assert _left_behind(workspace)[1] == []
        for info in await workspace.list():
            (workspace.directory / info.name).unlink()


async def test_upload_whose_source_fails_leaves_nothing_and_passes_the_failure_on(workspace):
    async def broken():
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await workspace.put("a", broken())
    assert _left_behind(workspace) == ([], [])


async def test_large_files_stream_through_little_memory(tmp_path):
    workspace = await workspaces.Workspaces(tmp_path, settings.Limits()).ensure("k")
    chunk = os.urandom(64 * KIB)
    await workspace.put("warm", _chunks(chunk))
    tracemalloc.start()
    try:
        info = await workspace.put("large", _chunks(*[chunk] * 1024))
        digest = hashlib.sha256()
        async with workspace.read(info.name, max_bytes=64 * MIB, may_be_sparse=False) as content:
            async for piece in content:
                digest.update(piece)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert info.size_bytes == 64 * MIB
    assert digest.digest() == hashlib.sha256(chunk * 1024).digest()
    assert peak_bytes < 4 * MIB


@pytest.mark.timeout(60)
async def test_only_regular_files_are_listed_and_read(workspace):
    os.mkfifo(workspace.directory / "fifo")
    (workspace.directory / "link").symlink_to("/etc/passwd")
    (workspace.directory / "folder").mkdir()
    (workspace.directory / "folder/file").write_bytes(b"x")
    assert [info.name for info in await workspace.list()] == ["folder/file"]
    for name in ("fifo", "link", "folder", "nothing", "../data/folder/file", "/etc/passwd", "\0"):
        with pytest.raises(errors.FileMissingError):
            await _bytes(workspace, name)


async def test_growing_file_is_read_up_to_the_size_it_had(workspace):
    path = workspace.directory / "log"
    path.write_bytes(b"x" * MIB)
    async with workspace.read("log") as content:
        size = 0
        async for chunk in content:
            assert len(chunk) <= workspace_io.CHUNK_BYTES
            size += len(chunk)
            with path.open("ab") as file:
                file.write(b"y" * MIB)
        assert size == content.info.size_bytes == MIB
        assert [chunk async for chunk in content] == []


async def test_shrinking_file_ends_early(workspace):
    path = workspace.directory / "log"
    path.write_bytes(b"x" * MIB)
    async with workspace.read("log") as content:
        os.truncate(path, 10)
        assert b"".join([chunk async for chunk in content]) == b"x" * 10


async def test_huge_sparse_file_is_refused_and_counts_what_it_holds(workspace):
    with (workspace.directory / "sparse").open("wb") as file:
        file.truncate(10**12)
    (info,) = await workspace.list()
    assert info.size_bytes == 10**12
    with pytest.raises(errors.FileTooLargeError):
        await _bytes(workspace, "sparse")
    assert await workspace.usage() == workspaces.directory_contents.DirectoryUsage(
        0, 1, False, False
    )


async def test_a_file_of_holes_is_not_given_back_but_may_be_read(workspace):
    with (workspace.directory / "holes").open("wb") as file:
        file.write(b"x")
        file.truncate(2 * MIB)
    (workspace.directory / "full").write_bytes(b"x" * 2 * MIB)
    full, holes = await workspace.list()
    with pytest.raises(errors.FileTooLargeError, match="sparse"):
        await _bytes(workspace, holes.name, may_be_sparse=False)
    assert len(await _bytes(workspace, full.name, may_be_sparse=False)) == 2 * MIB
    assert len(await _bytes(workspace, "holes")) == 2 * MIB


async def test_closed_content_reads_no_further(workspace):
    await workspace.put("a", _chunks(b"x"))
    async with workspace.read("a") as content:
        pass
    with pytest.raises(ValueError, match="closed"):
        assert [chunk async for chunk in content]


async def test_cancelled_reading_closes_its_file(workspace):
    await workspace.put("a", _chunks(b"x" * MIB))
    before = len(os.listdir("/proc/self/fd"))
    for delay in range(20):
        task = asyncio.create_task(_bytes(workspace, "a"))
        await asyncio.sleep(delay / 10000)
        task.cancel()
        await asyncio.wait({task})
    assert len(os.listdir("/proc/self/fd")) == before


async def test_swapping_while_collecting_never_gives_the_secret(workspace):
    secret = workspace.directory.parent / "secret"
    secret.write_bytes(b"s" * 100)
    path, link = workspace.directory / "a", workspace.directory / "b"
    end = time.monotonic() + 1

    def swap():
        while time.monotonic() < end:
            path.unlink(missing_ok=True)
            path.write_bytes(b"harmless")
            link.unlink(missing_ok=True)
            link.symlink_to("../secret")
            os.replace(link, path)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    while thread.is_alive():
        for info in (await workspace.list())[:1] or (values.FileInfo("a", 0, 0),):
            try:
                seen.add(await _bytes(workspace, info.name, max_bytes=1000, may_be_sparse=False))
            except errors.FileMissingError:
                continue
    assert b"harmless" in seen
    assert seen <= {b"harmless", b""}


async def test_a_file_above_a_limit_is_not_read(workspace):
    info = await workspace.put("a", _chunks(b"x" * 11))
    with pytest.raises(errors.FileTooLargeError):
        await _bytes(workspace, info.name, max_bytes=10)


async def test_reading_begins_where_it_is_wanted(workspace):
    await workspace.put("a", _chunks(b"0123456789"))
    assert await _bytes(workspace, "a", start=7) == b"789"
    assert await _bytes(workspace, "a", start=11) == b""


async def test_a_mark_is_known_to_whoever_opens_the_workspace_until_there_are_too_many(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(workspaces, "_MAX_SNAPSHOT_ENTRIES", 4)
    all_of_them = workspaces.Workspaces(tmp_path, LIMITS)
    mark = await (await all_of_them.ensure("a")).mark_files()
    workspace = await all_of_them.ensure("a")
    await workspace.put("new", _chunks(b"x"))
    assert [info.name for info in (await workspace.changes_since(mark)).files] == ["new"]
    for _ in range(2):
        await workspace.mark_files()
    with pytest.raises(errors.WorkspaceError, match="no longer knows"):
        await workspace.changes_since(mark)


async def test_changes_since_a_mark(workspace):
    for name in ("same", "grown", "rewritten", "gone"):
        (workspace.directory / name).write_bytes(b"1")
    (workspace.directory / "old link").symlink_to("x")
    mark = await workspace.mark_files()
    assert await workspace.changes_since(mark) == values.FileChanges((), (), is_truncated=False)
    await asyncio.sleep(0.02)  # the clock of a file system is coarse
    (workspace.directory / "grown").write_bytes(b"12")
    rewritten = workspace.directory / "rewritten"
    times = rewritten.stat()
    rewritten.write_bytes(b"2")
    os.utime(rewritten, ns=(times.st_atime_ns, times.st_mtime_ns))  # hides nothing
    (workspace.directory / "gone").unlink()
    (workspace.directory / "new").mkdir()
    (workspace.directory / "new/n\nl").write_bytes(b"")
    (workspace.directory / "link").symlink_to("x")
    changes = await workspace.changes_since(mark)
    assert [info.name for info in changes.files] == ["grown", r"new/n\x0al", "rewritten"]
    assert changes.skipped == (("link", "it is a link"),)
    assert not changes.is_truncated


async def test_changes_are_bounded(tmp_path):
    workspace = await workspaces.Workspaces(tmp_path, settings.Limits()).ensure("k")
    mark = await workspace.mark_files()
    for number in range(12_000):
        os.symlink("x", workspace.directory / f"{number}")
    changes = await workspace.changes_since(mark)
    assert (changes.files, len(changes.skipped), changes.is_truncated) == ((), 100, True)
    assert (await workspace.usage()).is_over_limit


async def test_usage_counts_hard_links_once_and_every_kind_of_entry(workspace):
    (workspace.directory / "a").write_bytes(b"x" * 8192)
    os.link(workspace.directory / "a", workspace.directory / "b")
    os.mkfifo(workspace.directory / "fifo")
    usage = await workspace.usage()
    assert (usage.bytes, usage.files, usage.is_partial, usage.is_over_limit) == (
        8192,
        3,
        False,
        False,
    )
    (workspace.directory / "c").write_bytes(b"x" * 4 * MIB)
    usage = await workspace.usage()
    assert usage.is_over_limit
    assert usage.bytes > 4 * MIB


async def test_session_keys_are_text_and_nothing_else(all_of_them, tmp_path):
    keys = ["../../etc", "a/b", "", "x" * 10_000, "\0", "\ud800", "ä", "a\u0308", "A", "a"]
    found = [await all_of_them.ensure(key) for key in keys]
    assert len({one.name for one in found}) == len(keys)
    assert all(re.fullmatch("[0-9a-f]{32}", one.name) for one in found)
    for one in found:
        assert one.directory.parent.parent == tmp_path / "workspaces"
        assert stat.S_IMODE(one.directory.stat().st_mode) == 0o700
    again = await all_of_them.ensure("../../etc")
    assert again.directory == found[0].directory
    assert {one.name for one in await all_of_them.list_all()} == {one.name for one in found}


async def test_removed_workspace_is_gone_and_can_come_back(all_of_them, workspace):
    await workspace.put("a", _chunks(b"x"))
    other = await all_of_them.ensure("other")
    await workspace.remove()
    await workspace.remove()
    assert [one.name for one in await all_of_them.list_all()] == [other.name]
    with pytest.raises(errors.WorkspaceError):
        await workspace.list()
    with pytest.raises(errors.WorkspaceError):
        await workspace.put("a", _chunks(b"x"))
    assert await (await all_of_them.ensure("slack:T1:C1:1.1")).list() == ()


async def test_sweeping_takes_what_the_dead_left_and_spares_the_living(all_of_them, workspace):
    staging = workspace.directory.parent / workspace_io.STAGING
    staging.mkdir()
    (staging / "leftover").touch()
    doomed = workspace.directory.parent.parent / ".removed-x"
    (doomed / "data").mkdir(parents=True)

    async def swept_meanwhile():
        yield b"1"
        await all_of_them.sweep()
        yield b"2"

    await workspace.put("a", swept_meanwhile())
    assert await _bytes(workspace, "a") == b"12"
    assert _left_behind(workspace) == (["a"], [])
    assert not doomed.exists()


async def test_nothing_blocks_the_loop_while_much_is_looked_at(tmp_path):
    workspace = await workspaces.Workspaces(tmp_path, settings.Limits()).ensure("k")
    for number in range(10_000):
        os.mknod(workspace.directory / f"{number}")
    for look in (workspace.list, workspace.mark_files, workspace.usage):
        # Processor time, of the loop's thread and of all: a busy machine changes neither.
        all_began, own_began = time.process_time(), time.thread_time()
        await look()
        own, everyone = time.thread_time() - own_began, time.process_time() - all_began
        # Done in the loop itself, its share would be the whole. What is found is put in order
        # there, which is the most that is left to it.
        assert own < 0.3 * everyone


async def test_a_disk_that_is_nearly_full_takes_no_file(tmp_path):
    limits = LIMITS.model_copy(update={"disk_reserve_bytes": 2**60})
    workspace = await workspaces.Workspaces(tmp_path, limits).ensure("web:t")
    with pytest.raises(errors.WorkspaceFullError, match="machine's disk is nearly full"):
        await workspace.put("x.csv", _chunks(b"1"))
    assert _left_behind(workspace) == ([], [])
