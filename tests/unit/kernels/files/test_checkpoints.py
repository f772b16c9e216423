"""Checkpoints copy files only if one has changed."""

import os
import time

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels.files import checkpoints, file_copies

SIZE = 100_000


@pytest.fixture
def write(tmp_path):
    """Write a checkpoint of the files, none of which has just changed."""
    (tmp_path / "files" / "folder").mkdir(parents=True)
    (tmp_path / "files" / "folder" / "a").write_bytes(b"a" * SIZE)

    def write(name, *, max_count=5, max_bytes=10**9, wait=0.05):
        time.sleep(wait)
        checkpoints.write(
            tmp_path / "kept",
            name,
            tmp_path / "files",
            pointer="",
            missed_runs=0,
            limits=file_copies.CopyLimits(max_bytes, 100, 0),
            max_count=max_count,
        )

    return write


def content(tmp_path, name):
    copy = checkpoints.read(tmp_path / "kept", name).copy_name
    return (tmp_path / "kept" / copy / "folder" / "a").read_bytes()[:1]


def test_files_that_did_not_change_are_copied_once(tmp_path, write):
    for name in ("1", "2", "3"):
        write(name)
    assert checkpoints.used_bytes(tmp_path / "kept") < 1.5 * SIZE
    assert [content(tmp_path, name) for name in "123"] == [b"a"] * 3
    checkpoints.remove_since(tmp_path / "kept", "2")
    assert content(tmp_path, "1") == b"a", "the copy stays while it is needed"
    assert checkpoints.remove_oldest(tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_change_that_leaves_size_and_time_is_a_change(tmp_path, write):
    write("1")
    file = tmp_path / "files" / "folder" / "a"
    status = file.stat()
    file.write_bytes(b"b" * SIZE)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    write("2")
    assert (content(tmp_path, "1"), content(tmp_path, "2")) == (b"a", b"b")


def test_the_latest_checkpoint_stays_the_latest_though_the_clock_is_set_back(
    tmp_path, write, monkeypatch
):
    write("1")
    write("2", max_count=2)
    an_hour_ago = time.time_ns() - 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: an_hour_ago)
    write("3", max_count=2)
    assert content(tmp_path, "3") == b"a"
    with pytest.raises(errors.KernelError):
        checkpoints.read(tmp_path / "kept", "1")
    checkpoints.remove_since(tmp_path / "kept", "3")
    assert content(tmp_path, "2") == b"a"


def test_files_that_have_just_changed_are_copied_again(tmp_path, write):
    file = tmp_path / "files" / "folder" / "a"
    for name in "12345":
        file.write_bytes(name.encode() * SIZE)
        write(name, wait=0.0)
    assert [content(tmp_path, name) for name in "12345"] == [name.encode() for name in "12345"]


def test_limits_hold_and_files_that_are_too_large_are_none(tmp_path, write):
    for name in ("1", "2", "3", "4"):
        write(name, max_count=3)
    assert [content(tmp_path, name) for name in "234"] == [b"a"] * 3
    with pytest.raises(errors.KernelError):
        content(tmp_path, "1")
    (tmp_path / "files" / "b").write_bytes(b"b" * SIZE)
    write("5", max_count=3, max_bytes=SIZE * 3 // 2)
    assert [content(tmp_path, name) for name in "34"] == [b"a"] * 2
    with pytest.raises(errors.KernelError):
        content(tmp_path, "2")
    assert "not copied" in checkpoints.read(tmp_path / "kept", "5").flaw
