"""Whose files change hands, and whose never do."""

import contextlib
import os
import stat

import pytest

from interpreter_bot.kernels.files import ownership, safe_open

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root hands files over")
KERNELS = range(50_000, 60_000)
FORMER, NEXT = 50_001, 50_002


@pytest.fixture
def root(tmp_path):
    """A workspace that a kernel had."""
    directory = tmp_path / "all" / "one" / "data"
    directory.mkdir(parents=True)
    os.chown(directory, FORMER, FORMER)
    return directory


def made(path, *, uid=FORMER, content=b"x"):
    path.write_bytes(content)
    os.chown(path, uid, uid)
    return path


def owner(path):
    return path.lstat().st_uid


def hand_over(root, uid=NEXT):
    ownership.change_owner([root], uid, KERNELS)


def test_everything_of_the_former_kernel_is_the_nexts(root):
    (root / "a/b").mkdir(parents=True)
    paths = [made(root / "f"), made(root / "a/b/g"), made(root / "a" / "by the bot", uid=0)]
    os.mkfifo(root / "fifo")
    hand_over(root)
    everything = [root, root / "a", root / "a/b", root / "fifo", *paths]
    assert {owner(path) for path in everything} == {NEXT}
    assert {path.lstat().st_gid for path in everything} == {NEXT}


def test_the_fork_server_can_walk_to_it_and_nobody_can_list_what_is_above(root):
    root.parent.chmod(0o700)
    root.parent.parent.chmod(0o700)
    hand_over(root)
    for directory in (root.parent, root.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o711


def test_links_are_handed_over_themselves_and_lead_nowhere(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = made(outside / "secret", uid=0)
    (root / "file").symlink_to(secret)
    (root / "directory").symlink_to(outside)
    (root / "up").symlink_to("../../..")
    hand_over(root)
    assert owner(secret) == owner(outside) == 0
    assert {owner(root / name) for name in ("file", "directory", "up")} == {NEXT}


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(root, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = made(outside / "secret", uid=0)
    (root / "sub").mkdir()
    really_open = safe_open.open_directory

    def swap_and_open(descriptor, path, **options):
        if path == b"sub":
            (root / "sub").rmdir()
            (root / "sub").symlink_to(outside)
        return really_open(descriptor, path, **options)

    monkeypatch.setattr(safe_open, "open_directory", swap_and_open)
    hand_over(root)
    assert owner(secret) == 0
    assert (root / "sub").is_symlink()


def test_another_name_of_a_file_elsewhere_is_left_alone_and_said(root, tmp_path, caplog):
    secret = made(tmp_path / "secret", uid=0)
    os.link(secret, root / "linked")
    hand_over(root)
    assert owner(secret) == 0
    assert owner(root) == NEXT
    assert "the owner of 1 files of a session could not be changed" in caplog.text


def test_several_names_of_a_kernels_own_file_are_no_obstacle(root):
    own = made(root / "own")
    os.link(own, root / "second")
    hand_over(root)
    assert owner(own) == NEXT


def test_what_was_interrupted_is_done_again(root, monkeypatch):
    (root / "sub").mkdir()
    inner = made(root / "sub/inner")
    really_open = safe_open.open_directory

    def die(descriptor, path, **options):
        if path == b"sub":
            raise KeyboardInterrupt
        return really_open(descriptor, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(safe_open, "open_directory", die)
        with pytest.raises(KeyboardInterrupt):
            hand_over(root)
    assert owner(inner) == FORMER
    hand_over(root)
    assert owner(inner) == NEXT


def test_depth_does_not_end_it(root):
    with contextlib.ExitStack() as opened:
        here = os.open(root, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        opened.callback(os.close, here)
        made_there = os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=here)
        opened.callback(os.close, made_there)
        hand_over(root)
        assert os.fstat(made_there).st_uid == NEXT
    parent = os.open(root.parent, os.O_RDONLY)
    safe_open.remove_tree(parent, root.name)
    os.close(parent)


def test_descriptors_are_not_left_open(root):
    (root / "a/b/c").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    hand_over(root)
    assert len(os.listdir("/proc/self/fd")) == before
