"""Subordinate user ids: what a bot that is not root needs to give each session an id of its own.

/etc/subuid and /etc/subgid grant a user ranges of ids that exist in user namespaces only. The bot
enters such a namespace before anything else, keeps its own id in it, and gets over the granted ids
the few rights that root has over all: to give files away, to open what is closed, to end and to
measure processes. So nothing else has to tell a bot of root from one with such ids: files of
kernels are read, counted and removed by the same code, whatever modes they have. Over the host and
over the user's own files it gets no right that it did not have.
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

_FEWEST: Final = 1000
# Below are the users of images.
_ABOVE_USERS: Final = 10_000
_CLONE_NEWUSER: Final = 0x10000000
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3: Final = 0x20080522
# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, SETGID, SETUID, SYS_PTRACE.
_NEEDED: Final = sum(1 << number for number in (0, 1, 2, 3, 5, 6, 7, 19))
# Run outside of the namespace, where these programs have their setuid bit.
_MAPPER: Final = "read -r _ && newuidmap $PID $UIDS && newgidmap $PID $GIDS"
_libc: Final = ctypes.CDLL(None, use_errno=True)


def enter(sandbox: settings.Sandbox, *, etc: pathlib.Path = pathlib.Path("/etc")) -> int:
    """Enter a namespace with the granted ids, where there are any; this process has one thread.

    They are `sandbox.first_uid` and those that follow, inside. It is tried in a child before,
    because there is no way back.

    Args:
        sandbox: nothing is done where it is off, or forbids this.
        etc: where the grants are.

    Returns:
        how many ids there are for kernels; 0 if the bot stays where it is.

    Raises:
        SandboxError: it worked in the child and not here.
    """
    if os.geteuid() == 0 or not sandbox.enabled or sandbox.subordinate_ids == "off":
        return 0
    if not all(shutil.which(program, path=os.defpath) for program in ("newuidmap", "newgidmap")):
        return 0
    first_uid, uids = _granted(etc / "subuid")
    first_gid, gids = _granted(etc / "subgid")
    count = min(uids, gids, sandbox.uid_count + 1) - 1
    if count < _FEWEST:
        return 0
    maps = (
        _map(os.geteuid(), first_uid, sandbox.first_uid, count),
        _map(os.getegid(), first_gid, sandbox.first_uid, count),
    )
    trial = os.fork()
    if trial == 0:
        status = 1
        try:
            _enter(*maps)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(trial, 0)[1]:
        _log.warning("the granted user ids cannot be used; `interpreter-bot doctor` says more")
        return 0
    try:
        _enter(*maps)
    except (OSError, subprocess.SubprocessError) as error:
        raise errors.SandboxError(host_words.BAD_USER_IDS) from error
    return count


def are_usable(directory: pathlib.Path, first_uid: int) -> bool:
    """Return whether files below a directory can be given to kernels' ids; found by trying."""
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

    As of rootless Podman, which usually has 65,536. Nothing changes for other users, where the
    operator has chosen, or where there are too few.
    """
    if os.geteuid() != 0 or "first_uid" in sandbox.model_fields_set:
        return sandbox
    rows = [tuple(map(int, line.split())) for line in uid_map.read_text("ascii").splitlines()]
    first, end = sandbox.first_uid, sandbox.first_uid + sandbox.uid_count
    if any(start <= first and end <= start + count for start, _, count in rows):
        return sandbox
    start, _, count = max(rows, key=lambda row: row[2])
    first = max(start, _ABOVE_USERS)
    count = min(sandbox.uid_count, start + count - first)
    if count < _FEWEST:
        return sandbox
    return sandbox.model_copy(update={"first_uid": first, "uid_count": count})


def on_host(uid: int) -> int:
    """Return what the surrounding namespace calls a user id."""
    for line in pathlib.Path("/proc/self/uid_map").read_text("ascii").splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= uid < inside + count:
            return outside + uid - inside
    return uid


def _granted(file: pathlib.Path) -> tuple[int, int]:
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
    """Write the arguments of newuidmap: inside, outside, how many.

    The id 0 means nobody who runs; processes that may not be looked into belong to it.
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
    low, high = _NEEDED & 0xFFFFFFFF, 0
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("6I", low, low, 0, high, high, 0)
    _check(_libc.syscall(_CAPSET[os.uname().machine], header, sets))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
