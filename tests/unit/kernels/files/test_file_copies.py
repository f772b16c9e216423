"""Copies of directories that code wrote, and may still be writing."""

from __future__ import annotations

import os
import threading

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels.files import file_copies


@pytest.fixture
def source(tmp_path):
    """What is copied."""
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def copied(tmp_path, source):
    """Copy it into a new directory, which is returned with the flaw."""

    def copy(name="target", **limits):
        target = tmp_path / name
        target.mkdir()
        limits = {
            "max_bytes": 10**9,
            "max_files": 1000,
            "reserve_bytes": 0,
        } | limits
        limits = file_copies.CopyLimits(**limits)
        return target, file_copies.copy_tree(source, target, limits)

    return copy


def test_content_holes_modes_times_links_and_empty_folders_are_copied_and_inodes_are_not(
    copied, source, tmp_path
):
    file = source / "a" / "b" / "data\nof 'two' \x1b lines"
    file.parent.mkdir(parents=True)
    with file.open("wb") as opened:
        opened.write(b"begin")
        opened.seek(50_000_000)
        opened.write(b"end")
        opened.truncate(90_000_000)
    os.utime(file, ns=(1, 2))
    file.chmod(0o755)
    (source / "empty").mkdir()
    (tmp_path / "secret").write_text("secret")
    (source / "link").symlink_to(tmp_path / "secret")
    target, flaw = copied()
    copy = target / "a" / "b" / file.name
    old, new = file.stat(), copy.stat()
    assert copy.read_bytes() == file.read_bytes()
    assert (new.st_mode, new.st_size, new.st_mtime_ns) == (old.st_mode, old.st_size, 2)
    assert new.st_ino != old.st_ino
    assert new.st_blocks * 512 < 2_000_000
    assert (target / "link").readlink() == tmp_path / "secret"
    assert list((target / "empty").iterdir()) == []
    assert flaw == ""


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.link(path.parent.parent / "f", path)])
def test_what_is_no_file_of_its_own_is_left_out_and_named(copied, source, tmp_path, make):
    (tmp_path / "f").write_text("of somebody else")
    (source / "file").write_text("x")
    make(source / "odd")
    target, flaw = copied()
    assert os.listdir(target) == ["file"]
    assert flaw.startswith("odd cannot be copied: it ")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_bytes": 50_000}, "more than 48.8 KiB"),
        ({"reserve_bytes": 10**18}, "nearly full"),
        ({"max_files": 1}, "more than 1 files"),
        ({"max_seconds": 0}, "too long"),
    ],
)
def test_what_is_too_much_is_refused_with_a_sentence(copied, source, limits, reason):
    for name in "ab":
        (source / name).write_bytes(bytes(range(256)) * 150)
    with pytest.raises(errors.WorkspaceFullError, match=reason):
        copied(**limits)


def test_code_that_swaps_files_for_links_gets_no_secret_copied(copied, source, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "f").write_text("secret")
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            for place, link in ((source / "d", tmp_path / "secret"), (source / "f", "secret/f")):
                place.symlink_to(tmp_path / link)
                place.unlink()
            (source / "d").mkdir()
            (source / "d" / "f").write_text("mine")
            (source / "f").write_text("mine")
            (source / "d" / "f").unlink()
            (source / "d").rmdir()
            (source / "f").unlink()

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(200):
            target, _ = copied(f"target {number}")
            for name in ("f", "d/f"):
                copy = target / name
                if not (copy.is_symlink() or copy.parent.is_symlink()) and copy.exists():
                    assert copy.read_text() in ("", "mine")
    finally:
        ended.set()
        swapping.join()


def test_a_file_that_grows_while_it_is_copied_is_said_and_bounded(copied, source):
    ended = threading.Event()
    (source / "log").write_bytes(bytes(30_000_000))

    def grow():
        with (source / "log").open("ab") as log:
            while not ended.is_set():
                log.write(b"x")
                log.flush()

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        target, flaw = copied()
    finally:
        ended.set()
        growing.join()
    assert flaw == "log cannot be copied: it changed meanwhile."
    assert 30_000_000 <= (target / "log").stat().st_size < 40_000_000


def test_content_replaces_what_was_there_whatever_that_is(tmp_path, source):
    staged = tmp_path / "staged"
    (staged / "d").mkdir(parents=True)
    (staged / "d" / "f").write_text("new")
    (source / "d").symlink_to(tmp_path)
    (source / "closed").mkdir()
    (source / "closed" / "f").touch()
    (source / "closed").chmod(0)
    inode = source.stat().st_ino
    file_copies.replace_content(source, staged)
    assert [*source.rglob("*")] == [source / "d", source / "d" / "f"]
    assert ((source / "d" / "f").read_text(), source.stat().st_ino) == ("new", inode)
    assert os.listdir(staged) == []
