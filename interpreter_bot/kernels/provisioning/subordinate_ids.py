"""Subordinate user ids: they let a bot that is not root give each session a user id of its own.

/etc/subuid and /etc/subgid grant a user ranges of ids that exist only in user namespaces. The bot
first enters such a namespace and keeps its own id in it. There it has some rights of root over the
granted ids: to change owners of files, to open any file, and to end and measure processes. All
other code works the same as for root, whatever modes files of kernels have. The bot gets no new
right over the host or over the user's own files.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import pathlib
import pwd
import secrets
import shutil
import struct
import subprocess
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_MIN_IDS: Final = 1000
# Smaller ids belong to users of container images.
_MIN_FREE_ID: Final = 10_000
_CLONE_NEWUSER: Final = 0x10000000
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3: Final = 0x20080522
# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, SETGID, SETUID, SYS_PTRACE.
_NEEDED_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 2, 3, 5, 6, 7, 19))
# Run outside of the namespace, where these programs have their setuid bit.
_MAPPER: Final = "read -r _ && newuidmap $PID $UIDS && newgidmap $PID $GIDS"
_libc: Final = ctypes.CDLL(None, use_errno=True)


def enter(sandbox: settings.Sandbox, *, etc: pathlib.Path = pathlib.Path("/etc")) -> int:
    """Enter a namespace with the granted ids, if there are any; this process must have one thread.

    Inside, they are `sandbox.first_uid` and the following ids. A child process tries first, because
    a process cannot leave the namespace. The grants are read in the directory `etc`.

    Returns:
        The number of ids for kernels; 0 if the bot entered no namespace.

    Raises:
        SandboxError: it worked in the child, but not here.
    """
    if os.geteuid() == 0 or not sandbox.enabled or sandbox.subordinate_ids == "off":
        return 0
    if not all(shutil.which(program, path=os.defpath) for program in ("newuidmap", "newgidmap")):
        return 0
    first_uid, uids = largest_grant(etc / "subuid")
    first_gid, gids = largest_grant(etc / "subgid")
    count = min(uids, gids, sandbox.uid_count + 1) - 1
    if count < _MIN_IDS:
        return 0
    maps = (
        _map(os.geteuid(), first_uid, sandbox.first_uid, count),
        _map(os.getegid(), first_gid, sandbox.first_uid, count),
    )
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _enter(*maps)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        _log.warning("the granted user ids cannot be used; `interpreter-bot doctor` says more")
        return 0
    try:
        _enter(*maps)
    except (OSError, subprocess.SubprocessError) as error:
        raise errors.SandboxError(host_words.BAD_USER_IDS) from error
    return count


def are_usable(directory: pathlib.Path, first_uid: int) -> bool:
    """Return whether files below a directory can be given to kernels' ids, by trying."""
    if os.geteuid() == 0:
        return True  # Otherwise kernels would be root.
    probe = directory / f".removed-{secrets.token_hex(16)}"
    probe.mkdir(mode=0o700)
    try:
        os.chown(probe, first_uid, first_uid)
    except OSError:
        return False
    finally:
        probe.rmdir()
    return True


def within_namespace(
    sandbox: settings.Sandbox, uid_map: pathlib.Path = pathlib.Path("/proc/self/uid_map")
) -> settings.Sandbox:
    """Choose other user ids for kernels if root of a user namespace lacks the usual ones.

    Rootless Podman, for example, usually has 65,536 ids. Nothing changes for other users, if the
    operator has chosen ids, or if there are too few.
    """
    if os.geteuid() != 0 or "first_uid" in sandbox.model_fields_set:
        return sandbox
    rows = [tuple(map(int, line.split())) for line in uid_map.read_text("ascii").splitlines()]
    first, end = sandbox.first_uid, sandbox.first_uid + sandbox.uid_count
    if any(start <= first and end <= start + count for start, _, count in rows):
        return sandbox
    start, _, count = max(rows, key=lambda row: row[2])
    first = max(start, _MIN_FREE_ID)
    count = min(sandbox.uid_count, start + count - first)
    if count < _MIN_IDS:
        return sandbox
    return sandbox.model_copy(update={"first_uid": first, "uid_count": count})


def on_host(uid: int) -> int:
    """Return the number of a user id in the parent namespace."""
    for line in pathlib.Path("/proc/self/uid_map").read_text("ascii").splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= uid < inside + count:
            return outside + uid - inside
    return uid


def largest_grant(file: pathlib.Path) -> tuple[int, int]:
    """Return the largest range that a file grants to this user, as its first id and length."""
    names = {str(os.geteuid())}
    with contextlib.suppress(KeyError):  # Not everybody has a name.
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0, 0
    ranges = [(0, 0)]
    for owner, first, count in (line.split(":") for line in lines if line.count(":") == 2):
        if owner in names and first.isdecimal() and count.isdecimal():
            ranges.append((int(first), int(count)))
    return max(ranges, key=lambda span: span[1])


def _map(own: int, granted: int, first: int, count: int) -> str:
    """Format the arguments of newuidmap: inside, outside and count, for each range.

    No process runs with id 0; files of undumpable processes in /proc belong to it.
    """
    return f"0 {granted} 1 {own} {own} 1 {first} {granted + 1} {count}"


def _enter(uids: str, gids: str) -> None:
    environment = {"PID": str(os.getpid()), "UIDS": uids, "GIDS": gids, "PATH": os.defpath}
    with subprocess.Popen(
        ["/bin/sh", "-c", _MAPPER],
        env=environment,
        stdin=subprocess.PIPE,
    ) as mapper:
        _check(_libc.unshare(_CLONE_NEWUSER))
        mapper.communicate(b"\n")
    if mapper.returncode:
        raise subprocess.CalledProcessError(mapper.returncode, "newuidmap")
    low, high = _NEEDED_CAPABILITIES & 0xFFFFFFFF, 0
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("6I", low, low, 0, high, high, 0)
    _check(_libc.syscall(_CAPSET[os.uname().machine], header, sets))


def _check(result: int) -> None:
    if result < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))
