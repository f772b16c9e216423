"""Which generation of saved variables counts, and what is deleted of the others."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.kernels import (
    snapshot_generations,
    snapshot_retention,
    snapshots,
)
from interpreter_bot.kernels.files import (
    checkpoints,
    file_copies,
    safe_open,
    session_locks,
    workspaces,
)

MANIFEST = {
    **{
        "format": 4,
        "problem": "",
        "is_disk_full": False,
        "kept": ["x"],
        "kept_count": 1,
        "lost": {},
        "lost_count": 0,
    },
    **{"partly": {}, "partly_saved_count": 0, "blobs": {}},
}


@pytest.fixture
def generations():
    return snapshot_generations.Generations(
        settings.Snapshots(), snapshot_generations.SnapshotKey(b"key")
    )


@pytest.fixture
async def workspace(tmp_path):
    return await workspaces.Workspaces(tmp_path, settings.Limits()).ensure("a")


def _write(workspace, number, manifest=MANIFEST):
    own = workspace.variables / f"{number}"
    own.mkdir()
    (own / "manifest.json").write_text(json.dumps(manifest))


def _activate(generations, workspace, number, known):
    record = snapshot_generations.PointerRecord(number=number, kernel=f"k{number}", runs=1)
    generations.activate(workspace, record, known)


def _left(workspace):
    return sorted(os.listdir(workspace.variables))


async def test_without_descriptors_nothing_is_known_and_nothing_deleted(
    generations, workspace, monkeypatch
):
    _write(workspace, 5)
    _activate(generations, workspace, 5, {0})

    def fail(*_):
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(safe_open, "_open", fail)
        with pytest.raises(errors.WorkspaceError):
            generations.find(workspace)
        with pytest.raises(errors.WorkspaceError):
            generations.prune(workspace)
    assert generations.find(workspace).number == 5
    assert _left(workspace) == ["5"]


async def test_what_another_kernel_has_saved_is_neither_replaced_nor_deleted(
    generations, workspace, caplog
):
    old, new = {0}, {0}
    _write(workspace, 1)
    _activate(generations, workspace, 1, old)
    new.add(1)
    _write(workspace, 2)
    _activate(generations, workspace, 2, new)
    _write(workspace, 3)
    _activate(generations, workspace, 3, old)
    generations.prune(workspace, old)
    assert generations.find(workspace).number == 2
    assert _left(workspace) == ["1", "2", "3"]
    assert "another Python has saved" in caplog.text
    generations.prune(workspace, new)
    assert _left(workspace) == ["2"]
    snapshot_generations.delete_all(workspace)
    _write(workspace, 4)
    _activate(generations, workspace, 4, {2})
    assert generations.find(workspace) is None, "a session that was reset gets nothing back"


async def test_it_is_logged_where_nothing_was_saved(generations, workspace, caplog):
    _activate(generations, workspace, 1, {0})
    assert "nothing was saved" in caplog.text
    _write(workspace, 2, MANIFEST | {"problem": "Too many\nopen files"})
    _activate(generations, workspace, 2, {0})
    assert "Too many open files" in caplog.text


@pytest.fixture
def opened(tmp_path):
    """Open snapshots, which are taken or not any more, of workspaces in one place."""

    async def open_snapshots(**sizes):
        config = settings.Settings(
            snapshots=settings.Snapshots(**sizes), paths=settings.Paths(data=tmp_path)
        )
        return await snapshots.Snapshots.open(config, is_used=True)

    return open_snapshots


async def _expired(saved, everyone, locks):
    return await snapshot_retention.expire(saved, everyone, locks, max_days=30)


async def test_what_no_pointer_counts_goes_and_what_is_in_use_stays(tmp_path, opened):
    files = workspaces.Workspaces(tmp_path / "workspaces", settings.Limits())
    for key in "abcd":
        ((await files.ensure(key)).variables / "7").mkdir()
    everyone = [
        *await files.list_all(),
        workspaces.Workspace(tmp_path / "gone" / "data", None, None),
    ]
    locks = session_locks.SessionLocks()
    await locks.acquire(await files.ensure("b"))
    with _used_elsewhere(await files.ensure("d")):
        assert await _expired(await opened(), everyone, locks) == 0
    locks.close()
    assert [_left(await files.ensure(key)) for key in "abcd"] == [[], ["7"], [], ["7"]]


async def test_what_a_dead_process_staged_goes_unless_somebody_may_be_staging(tmp_path, opened):
    files = workspaces.Workspaces(tmp_path / "workspaces", settings.Limits())
    dead, new, used = [(await files.ensure(key)).staging for key in "abc"]
    for staging in (dead, new, used):
        (staging / "d").mkdir(parents=True)
    for staging in (dead, used):
        os.utime(staging, (0, 0))
    with _used_elsewhere(await files.ensure("c")):
        await _expired(await opened(), await files.list_all(), session_locks.SessionLocks())
    assert [staging.exists() for staging in (dead, new, used)] == [False, True, True]


@contextlib.contextmanager
def _used_elsewhere(workspace):
    """Have a session, as another process does."""
    descriptor = os.open(workspace.directory.parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


async def test_who_begins_while_others_are_deleted_keeps_what_is_saved(tmp_path, opened):
    files = workspaces.Workspaces(tmp_path / "workspaces", settings.Limits())
    saved = await opened()
    for key in "ab":
        _write(own := await files.ensure(key), 5)
        _activate(saved.generations, own, 5, {0})
        os.utime(own.variables.parent / "snapshot", (0, 0))
    own = await files.ensure("a")

    class Late(list):
        def __iter__(self):
            yield from list.__iter__(self)
            elsewhere.enter_context(_used_elsewhere(own))

    with contextlib.ExitStack() as elsewhere:
        everyone = Late(await files.list_all())
        assert await _expired(saved, everyone, session_locks.SessionLocks()) == 1
    assert (await saved.find(await files.ensure("a"))).number == 5
    assert await saved.find(await files.ensure("b")) is None


async def test_what_was_saved_goes_where_none_are_taken_any_more(tmp_path, opened):
    files = workspaces.Workspaces(tmp_path / "workspaces", settings.Limits())
    own = await files.ensure("a")
    _write(own, 5)
    _activate((await opened()).generations, own, 5, {0})
    locks = session_locks.SessionLocks()
    with _used_elsewhere(own):
        await _expired(await opened(bytes=0), await files.list_all(), locks)
    assert _left(own) == ["5"]
    await _expired(await opened(bytes=0), await files.list_all(), locks)
    assert _left(own) == []
    assert not (own.variables.parent / "snapshot").exists()


@pytest.mark.parametrize("sign", [True, False])
@pytest.mark.parametrize(
    ("manifest", "pointer"),
    [
        ('{"format": 2}', {}),
        ('{"format": 5}', {}),
        ("encrypted", {"seal": "0" * 32}),
        ("{}", {"number": "5"}),
        *((damaged, {}) for damaged in ("", "x" * 300_000, "[" * 100_000, '{"format": 4}', "[2]")),
    ],
)
async def test_what_cannot_be_read_stays_until_that_is_said(
    generations, workspace, manifest, pointer, sign
):
    _write(workspace, 5)
    (workspace.variables / "5" / "manifest.json").write_text(manifest)
    content = json.dumps({"number": 5, "kernel": "k", "runs": 1, "deaths": 0} | pointer)
    key = snapshot_generations.SnapshotKey(b"key" if sign else b"another")
    signed = f"{content}\n{key.sign(workspace.name, content)}"
    snapshot_generations.write_pointer(workspace, signed)
    assert generations.find(workspace) is None
    generations.prune(workspace)
    assert generations.find(workspace) is None
    assert _left(workspace) == ["5"]
    assert generations.drop_unreadable(workspace)
    assert (_left(workspace), snapshot_generations.read_pointer(workspace)) == ([], "")
    assert not generations.drop_unreadable(workspace)


async def test_a_copy_is_signed_for_its_own_session_and_holds_only_what_was_signed(
    generations, tmp_path
):
    files = workspaces.Workspaces(tmp_path / "more", settings.Limits())
    source, copy, late = [await files.ensure(name) for name in ("source", "copy", "late")]
    digest = "0" * 64
    for name in (digest, "1" * 64):
        (source.variables / "blobs").mkdir(exist_ok=True)
        (source.variables / "blobs" / name).write_bytes(b"x")
    _write(source, 5, MANIFEST | {"blobs": {digest: 1}})
    (source.variables / "5" / "link").symlink_to("/etc/passwd")
    _activate(generations, source, 5, {0})
    generations.copy(source, copy, reserve_bytes=0)
    assert generations.find(copy).summary == generations.find(source).summary
    assert [one.name for one in (copy.variables / "5").iterdir()] == ["manifest.json"]
    assert [one.name for one in (copy.variables / "blobs").iterdir()] == [digest]
    # What is signed for one counts in no other, and no state that nobody signed is copied.
    pointer = snapshot_generations.read_pointer(source)
    assert generations.find(copy, pointer) is None
    (source.variables / "5" / "manifest.json").write_text(json.dumps(MANIFEST))
    generations.copy(source, late, reserve_bytes=0)
    assert generations.find(late) is None


async def test_what_is_read_stays_though_it_does_not_count_any_more(generations, workspace):
    _write(workspace, 5)
    _activate(generations, workspace, 5, {0})
    with generations.pin(workspace, snapshot_generations.read_pointer(workspace)):
        _write(workspace, 6)
        _activate(generations, workspace, 6, {5})
        generations.prune(workspace)
        assert generations.find(workspace).number == 6
        assert _left(workspace) == ["5", "6"]
    generations.prune(workspace)
    assert _left(workspace) == ["6"]


async def test_what_a_checkpoint_needs_stays_until_there_are_too_many(generations, workspace):
    for number in range(1, 8):
        _write(workspace, number)
        _activate(generations, workspace, number, set(range(number)))
        pointer = snapshot_generations.read_pointer(workspace)
        checkpoints.write(
            workspace.checkpoints,
            f"{number}",
            workspace.directory,
            pointer=pointer,
            missed_runs=0,
            limits=file_copies.CopyLimits(10**9, 100, 0),
            max_count=3,
        )
        generations.prune(workspace)
    assert _left(workspace) == ["5", "6", "7"]
    generations.use_pointer(workspace, checkpoints.read(workspace.checkpoints, "5").pointer)
    checkpoints.remove_since(workspace.checkpoints, "5")
    generations.prune(workspace)
    assert (generations.find(workspace).number, _left(workspace)) == (5, ["5"])
    with pytest.raises(errors.KernelError):
        checkpoints.read(workspace.checkpoints, "6")
    generations.use_pointer(workspace, "")
    generations.prune(workspace)
    assert _left(workspace) == []
