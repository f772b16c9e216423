"""Copies of files that code wrote, and what is no file of its own."""

from __future__ import annotations

import os

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels.files import directory_contents, file_copies, workspace_io


@pytest.fixture
def copied(tmp_path):
    """Copy all that a directory holds into a new one, which is returned."""
    source = tmp_path / "source"
    source.mkdir()

    def copy(*, most_bytes=10**9, reserve_bytes=0):
        target = tmp_path / "target"
        target.mkdir()
        with workspace_io.opened(source) as old, workspace_io.opened(target) as new:
            entries = directory_contents.scan(old, 1000).entries
            file_copies.copy_files(
                old, new, entries, most_bytes=most_bytes, reserve_bytes=reserve_bytes
            )
        return target

    copy.source = source
    return copy


def test_content_holes_modes_and_times_are_copied_and_inodes_are_not(copied):
    file = copied.source / "a" / "b" / "data"
    file.parent.mkdir(parents=True)
    with file.open("wb") as opened:
        opened.write(b"begin")
        opened.seek(50_000_000)
        opened.write(b"end")
        opened.truncate(90_000_000)
    os.utime(file, ns=(1, 2))
    file.chmod(0o755)
    copy = copied() / "a" / "b" / "data"
    old, new = file.stat(), copy.stat()
    assert copy.read_bytes() == file.read_bytes()
    assert (new.st_mode, new.st_size, new.st_mtime_ns) == (old.st_mode, old.st_size, 2)
    assert new.st_ino != old.st_ino
    assert new.st_blocks * 512 < 2_000_000


def test_links_pipes_and_files_of_several_names_are_left_out(copied, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (copied.source / "link").symlink_to(tmp_path / "secret")
    (copied.source / "folder").symlink_to(tmp_path)
    os.link(tmp_path / "secret", copied.source / "hard")
    os.mkfifo(copied.source / "pipe")
    (copied.source / "file").write_text("x")
    assert os.listdir(copied()) == ["file"]


@pytest.mark.parametrize("limits", [{"most_bytes": 50_000}, {"reserve_bytes": 10**18}])
def test_what_is_too_large_is_refused_with_a_sentence(copied, limits):
    for name in "ab":
        (copied.source / name).write_bytes(bytes(range(256)) * 150)
    with pytest.raises(errors.WorkspaceFullError):
        copied(**limits)
