"""Subordinate user ids: they let a bot that is not root give each session a user id of its own.

/etc/subuid and /etc/subgid grant a user ranges of ids that exist only in user namespaces. The bot
enters such a namespace at its start, and keeps its own id in it. There it has some rights of root
over the granted ids: to change owners of files, to open any file, and to end and measure processes.
All other code works as it does for root. The bot gets no new right over the host or over the user's
own files.
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
_CAPSET_NUMBERS: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3: Final = 0x20080522
# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, SETGID, SETUID, SYS_PTRACE.
_NEEDED_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 2, 3, 5, 6, 7, 19))
# This runs outside of the namespace, where the setuid bit of these programs works.
_MAPPER_SCRIPT: Final = "read -r _ && newuidmap $PID $UIDS && newgidmap $PID $GIDS"
_libc: Final = ctypes.CDLL(None, use_errno=True)


def enter(sandbox: settings.Sandbox, *, etc_directory: pathlib.Path = pathlib.Path("/etc")) -> int:
    """Enter a namespace with the granted ids, if there are any; this process must have one thread.

    In the namespace, the granted ids are `sandbox.first_uid` and the following ones. A child
    process tries first, because a process cannot leave the namespace. Grants are read in
    `etc_directory`.

    Returns:
        The number of ids for kernels; 0 if the bot entered no namespace.

    Raises:
        SandboxError: it worked in the child, but not here.
    """
    if os.geteuid() == 0 or not sandbox.enabled:
        return 0
    if not all(shutil.which(program, path=os.defpath) for program in ("newuidmap", "newgidmap")):
        return 0
    first_uid, uid_count = largest_grant(etc_directory / "subuid")
    first_gid, gid_count = largest_grant(etc_directory / "subgid")
    count = min(uid_count, gid_count, sandbox.uid_count + 1) - 1
    if count < _MIN_IDS:
        return 0
    id_maps = (
        _format_id_map(os.geteuid(), first_uid, sandbox.first_uid, count),
        _format_id_map(os.getegid(), first_gid, sandbox.first_uid, count),
    )
    child_pid = os.fork()
    if child_pid == 0:
        status = 1
        try:
            _enter_namespace(*id_maps)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child_pid, 0)[1]:
        _log.warning("the granted user ids cannot be used; `interpreter-bot doctor` says more")
        return 0
    try:
        _enter_namespace(*id_maps)
    except (OSError, subprocess.SubprocessError) as error:
        raise errors.SandboxError(host_words.BAD_USER_IDS) from error
    return count


def are_usable(directory: pathlib.Path, first_uid: int) -> bool:
    """Return whether files below a directory can be given to kernels' ids, by trying."""
    if os.geteuid() == 0:
        return True  # Root never shares its id: kernels would be root, too.
    probe = directory / f".removed-{secrets.token_hex(16)}"
    probe.mkdir(mode=0o700)
    try:
        os.chown(probe, first_uid, first_uid)
    except OSError:
        return False
    finally:
        probe.rmdir()
    return True


def choose_ids_in_namespace(
    sandbox: settings.Sandbox, uid_map: pathlib.Path = pathlib.Path("/proc/self/uid_map")
) -> settings.Sandbox:
    """Choose other user ids for kernels if root of a user namespace lacks the usual ones.

    Rootless Podman, for example, usually has 65,536 ids. If the operator has chosen the first id,
    it stays. All ids stay the same for other users, or if the namespace has too few.
    """
    if os.geteuid() != 0:
        return sandbox
    rows = [tuple(map(int, line.split())) for line in uid_map.read_text("ascii").splitlines()]
    first_uid, end_uid = sandbox.first_uid, sandbox.first_uid + sandbox.uid_count
    if any(start <= first_uid and end_uid <= start + count for start, _, count in rows):
        return sandbox
    if "first_uid" not in sandbox.model_fields_set:
        first_uid = max(max(rows, key=lambda row: row[2])[0], _MIN_FREE_ID)
    counts = [start + count - first_uid for start, _, count in rows if start <= first_uid]
    count = min(sandbox.uid_count, max(counts, default=0))
    return sandbox if count < _MIN_IDS else sandbox.with_uids(first_uid, count)


def id_on_host(uid: int) -> int:
    """Return the number of a user id in the parent namespace."""
    for line in pathlib.Path("/proc/self/uid_map").read_text("ascii").splitlines():
        first_inside_id, first_outside_id, count = map(int, line.split())
        if first_inside_id <= uid < first_inside_id + count:
            return first_outside_id + uid - first_inside_id
    return uid


def largest_grant(file: pathlib.Path) -> tuple[int, int]:
    """Return the largest range that a file grants to this user, as its first id and length."""
    names = {str(os.geteuid())}
    with contextlib.suppress(KeyError):  # Some users have no name.
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0, 0
    ranges = [(0, 0)]
    for owner, first_id, count in (line.split(":") for line in lines if line.count(":") == 2):
        if owner in names and first_id.isdecimal() and count.isdecimal():
            ranges.append((int(first_id), int(count)))
    return max(ranges, key=lambda span: span[1])


def _format_id_map(own_id: int, first_granted_id: int, first_inside_id: int, count: int) -> str:
    """Format the arguments of newuidmap: inside, outside and count, for each range.

    Id 0 is mapped, too: files of undumpable processes in /proc belong to it. No process uses it.
    """
    map_of_0, map_of_own_id = f"0 {first_granted_id} 1", f"{own_id} {own_id} 1"
    return f"{map_of_0} {map_of_own_id} {first_inside_id} {first_granted_id + 1} {count}"


def _enter_namespace(uid_map: str, gid_map: str) -> None:
    environment = {"PID": str(os.getpid()), "UIDS": uid_map, "GIDS": gid_map, "PATH": os.defpath}
    with subprocess.Popen(
        ["/bin/sh", "-c", _MAPPER_SCRIPT],
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
    _check(_libc.syscall(_CAPSET_NUMBERS[os.uname().machine], header, sets))


def _check(result: int) -> None:
    if result < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))
