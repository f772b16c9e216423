"""Attacks on a directory, on a real file system, by both ways of opening (openat2 and without)."""

import contextlib
import errno
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot import errors
from interpreter_bot.kernels.files import directory_contents, safe_open

SECRET = b"the bot's token"


@pytest.fixture(params=["openat2", "walk"])
def _way(request, monkeypatch):
    if request.param == "walk":

        def missing(*_):
            raise OSError(errno.ENOSYS, "as in an old kernel")

        monkeypatch.setattr(safe_open, "_openat2", missing)


@pytest.fixture
def place(tmp_path):
    """A directory full of malice, beside it a secret."""
    (tmp_path / "secret").write_bytes(SECRET)
    directory = tmp_path / "data"
    directory.mkdir()
    yield directory
    _remove(directory)  # pytest could not: what is deep breaks its own clearing away


@pytest.fixture
def root(place):
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def _read(root, path):
    with os.fdopen(safe_open.open_file(root, path), "rb") as file:
        return file.read()


def _names(root, limit=1000):
    return {
        entry.info.name: entry.refusal for entry in directory_contents.scan(root, limit).entries
    }


@pytest.mark.usefixtures("_way")
def test_regular_file_is_read_at_any_depth(place, root):
    (place / "a/b").mkdir(parents=True)
    (place / "a/b/c.txt").write_bytes(b"here")
    assert _read(root, b"a/b/c.txt") == b"here"
    assert _names(root) == {"a/b/c.txt": ""}


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    "target", ["../secret", "{outside}/secret", "/proc/self/environ", "inside", "/dev/zero"]
)
def test_link_is_refused_wherever_it_points(place, root, target):
    (place / "inside").write_bytes(b"harmless")
    (place / "link").symlink_to(target.format(outside=place.parent))
    with pytest.raises(errors.FileMissingError):
        safe_open.open_file(root, b"link")
    assert _names(root) == {"inside": "", "link": "it is a link"}


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("target", ["..", "/", "/proc/self/root", "/proc/self/cwd", "."])
def test_link_to_a_directory_is_not_entered(place, root, target):
    (place / "link").symlink_to(target)
    for path in (b"link/secret", b"link/etc/passwd"):
        with pytest.raises(errors.FileMissingError):
            safe_open.open_file(root, path)
    with pytest.raises(OSError, match=r"symbolic|directory"):
        safe_open.open_directory(root, b"link")
    assert _names(root) == {"link": "it is a link"}
    assert directory_contents.measure(root, max_bytes=10**9, max_files=10).files == 1


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    "path", [b"../secret", b"/etc/passwd", b"a/../../secret", b"./a", b"a//b", b"", b"..", b"a\0b"]
)
def test_path_that_is_not_plain_is_refused(place, root, path):
    (place / "a").mkdir()
    with pytest.raises((errors.FileMissingError, ValueError)):
        safe_open.open_file(root, path)


@pytest.mark.usefixtures("_way")
def test_hard_link_is_refused(place, root):
    os.link(place.parent / "secret", place / "mine.txt")
    with pytest.raises(errors.FileMissingError):
        safe_open.open_file(root, b"mine.txt")
    assert _names(root) == {"mine.txt": "it has several names (hard links)"}


@pytest.mark.usefixtures("_way")
@pytest.mark.timeout(60)
def test_fifo_socket_and_device_are_refused_at_once(place, root, monkeypatch):
    monkeypatch.chdir(place)  # a socket's path is short
    os.mkfifo("fifo")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind("socket")
    things = {"fifo", "socket"}
    with contextlib.suppress(PermissionError):
        os.mknod("device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        things.add("device")
    for name in things:
        with pytest.raises(errors.FileMissingError):
            safe_open.open_file(root, name.encode())
    assert _names(root) == dict.fromkeys(things, "it is not a regular file")


@pytest.mark.usefixtures("_way")
@pytest.mark.namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_other_file_system_is_not_entered(place):
    (place / "mount").mkdir()
    code = f"""if True:
        import os, sys
        from interpreter_bot.kernels.files import safe_open
        if {safe_open._openat2.__name__ == "missing"}:
            def missing(*_): raise OSError({errno.ENOSYS}, "")
            safe_open._openat2 = missing
        root = os.open({str(place)!r}, os.O_RDONLY)
        open({str(place / "mount/file")!r}, "w").close()
        ways = (safe_open.open_file, b"mount/file"), (safe_open.open_directory, b"mount")
        for way, path in ways:
            try:
                way(root, path)
            except Exception as e:
                print(type(e).__name__)
    """
    command = f"mount -t tmpfs none {place}/mount && exec {sys.executable} -"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        input=code, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "mount" in done.stderr and "ermi" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split() == ["FileMissingError", "OSError"], done.stderr


def _read_beside(action, read, *, is_enough):
    """Read for at least a second, and until that is enough, while a thread repeats an action."""
    is_over = threading.Event()

    def repeat():
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end or not is_enough():
            read()
    finally:
        is_over.set()
        thread.join()


@pytest.mark.usefixtures("_way")
def test_file_swapped_for_a_link_while_opened_never_yields_the_secret(place, root):
    (place / "file").write_bytes(b"harmless")
    (place / "link").symlink_to("../secret")

    def swap():
        safe_open.move_without_replacing(root, "file", root, "away")
        os.rename(place / "link", place / "file")
        os.rename(place / "file", place / "link")
        os.rename(place / "away", place / "file")

    seen = set()

    def read():
        with contextlib.suppress(errors.FileMissingError):
            seen.add(_read(root, b"file"))

    _read_beside(swap, read, is_enough=lambda: seen)
    assert seen == {b"harmless"}


@pytest.mark.usefixtures("_way")
def test_directory_swapped_for_a_link_while_opened_never_yields_the_secret(place, root):
    outside = place.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(SECRET)
    (place / "folder").mkdir()
    (place / "folder/file").write_bytes(b"harmless")
    (place / "link").symlink_to("../outside")

    def swap():
        os.rename(place / "folder", place / "away")
        os.rename(place / "link", place / "folder")
        os.rename(place / "folder", place / "link")
        os.rename(place / "away", place / "folder")

    seen, listed = set(), set()

    def read():
        with contextlib.suppress(errors.FileMissingError):
            seen.add(_read(root, b"folder/file"))
        entries = directory_contents.scan(root, 100).entries
        listed.update(entry.info.size_bytes for entry in entries if not entry.refusal)

    _read_beside(swap, read, is_enough=lambda: seen and listed)
    assert seen == {b"harmless"}
    assert listed == {len(b"harmless")}


HOSTILE_NAMES = [
    b"new\nline.csv", "sla\u2215sh.csv".encode(), "fdp.\u202excod".encode(), b"in\xffvalid.csv",
    b"x" * 255, b"-rf", b"..hidden", b"...", b"back\\slash", b"literal\\x0a", "\u200b".encode(),
    b"\x1b[31mred", "naïve é 日本.txt".encode(), b" ", b"`$(id)`@everyone",
]  # fmt: skip


@pytest.mark.usefixtures("_way")
def test_file_of_any_name_is_listed_harmlessly_and_read_by_that_name(place, root):
    for number, name in enumerate(HOSTILE_NAMES):
        (place / os.fsdecode(name)).write_bytes(b"%d" % number)
    listed = {entry.info.name for entry in directory_contents.scan(root, 100).entries}
    assert len(listed) == len(HOSTILE_NAMES)
    assert all(name.isprintable() for name in listed)
    assert not any(sign in name for name in listed for sign in "\u2215\u202e\u200b")
    contents = {_read(root, directory_contents.parse_display_name(name)) for name in listed}
    assert contents == {b"%d" % number for number in range(len(HOSTILE_NAMES))}
    assert {r"new\x0aline.csv", r"literal\x5cx0a", "naïve é 日本.txt"} <= listed


@hypothesis.given(st.binary(min_size=1, max_size=60).filter(lambda path: b"\0" not in path))
def test_shown_is_harmless_and_reversible(path):
    name = directory_contents.display_name(path)
    assert name.isprintable()
    assert directory_contents.parse_display_name(name) == path


@hypothesis.given(st.text(max_size=30))
def test_raw_accepts_only_what_is_shown(name):
    with contextlib.suppress(errors.FileMissingError):
        assert directory_contents.display_name(directory_contents.parse_display_name(name)) == name


@pytest.mark.parametrize("name", [r"a\x2fb", r"\x41", "a\nb", "\ud800", r"\xzz", "a" * 1025])
def test_raw_refuses_what_is_never_shown(name):
    with pytest.raises(errors.FileMissingError):
        directory_contents.parse_display_name(name)


def test_scan_stops_at_its_bound_and_says_so(place, root):
    for number in range(11_000):
        os.mknod(place / f"{number}")
    scan = directory_contents.scan(root, 10_000)
    assert scan.is_truncated
    assert len(scan.entries) == 10_000
    assert not directory_contents.scan(root, 11_000).is_truncated
    usage = directory_contents.measure(root, max_bytes=10**9, max_files=100)
    assert (usage.files, usage.is_partial, usage.is_over_limit) == (101, True, True)


def _dig(place: pathlib.Path, depth: int, name: str = "d" * 20):
    """Directories below each other, deeper than any path reaches, a file in each."""
    here = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("depth", [1000, 3000])
def test_deep_tree_is_bounded_measured_and_removed(place, root, depth):
    _dig(place, depth)
    entries = directory_contents.scan(root, 10_000).entries
    assert 0 < len(entries) <= 2 * directory_contents.MAX_DEPTH
    assert {entry.refusal for entry in entries} == {"", "it is nested too deeply"}
    usage = directory_contents.measure(root, max_bytes=10**9, max_files=10**6)
    assert usage.is_over_limit  # what cannot be counted is no free storage
    _remove(place)


def _remove(place):
    parent = os.open(place.parent, os.O_RDONLY)
    try:
        safe_open.remove_tree(parent, place.name)
    finally:
        os.close(parent)
    assert not place.exists()
    assert (place.parent / "secret").read_bytes() == SECRET


def test_depth_that_programs_can_name_is_counted_fully(place, root):
    _dig(place, 1000, "d")
    usage = directory_contents.measure(root, max_bytes=10**9, max_files=10**6)
    assert (usage.files, usage.is_over_limit) == (2000, False)


def test_removal_follows_no_link_and_copes_with_everything(place):
    (place / "link").symlink_to("../secret")
    (place / "up").symlink_to("..")
    os.mkfifo(place / "fifo")
    os.link(place.parent / "secret", place / "hard")
    for name in HOSTILE_NAMES:
        (place / os.fsdecode(name)).mkdir()
        (place / os.fsdecode(name) / "x").touch()
    _remove(place)
    _remove(place)  # once more is fine


def test_removal_gives_up_against_somebody_who_never_stops(place, monkeypatch):
    monkeypatch.setattr(safe_open, "_MAX_REMOVALS", 500)
    for number in range(600):
        (place / f"{number}").touch()
    with pytest.raises(OSError, match="created faster than deleted"):
        _remove(place)


CLOSED = """if True:
    import os, sys
    from interpreter_bot.kernels.files import directory_contents, safe_open
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    parent = os.open({0!r}, os.O_RDONLY)
    os.makedirs({0!r} + "/data/a/b/c")
    for path in ("a/b/c", "a/b", "a"):
        open({0!r} + "/data/" + path + "/file", "w").write("x" * 4096)
        os.chmod({0!r} + "/data/" + path, int(sys.argv[1], 8))
    root = os.open({0!r} + "/data", os.O_RDONLY)
    print([entry.refusal for entry in directory_contents.scan(root, 99).entries])
    print(directory_contents.measure(root, max_bytes=10**9, max_files=99).files)
    for path in ("a", "a/b", "a/b/c"):
        os.chmod({0!r} + "/data/" + path, 0o700)
    for path in ("a/b/c", "a/b", "a"):
        os.chmod({0!r} + "/data/" + path, int(sys.argv[1], 8))
    safe_open.remove_tree(parent, "data")
    print(os.listdir(parent))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which cannot read all")
@pytest.mark.parametrize("mode", ["000", "400", "500"])
def test_closed_directories_hide_nothing_and_are_removed_by_a_plain_user(tmp_path, mode):
    os.chown(tmp_path, 65534, 65534)
    for above in (tmp_path.parent, tmp_path.parent.parent):
        above.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", CLOSED.format(str(tmp_path)), mode],
        capture_output=True, text=True, check=False, cwd=pathlib.Path.cwd(),
    )  # fmt: skip
    if mode != "500":
        assert done.stdout.splitlines()[0] != "['', '', '']", done.stderr
    assert done.stdout.splitlines()[1:] == ["6", "[]"], done.stderr
