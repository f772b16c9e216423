"""Run a command in a container like that of `docker run`: `python -m tests.in_container COMMAND…`.

With `--plain` before the command the container obeys the pod security standard "restricted" of
Kubernetes: the user is not root, has no capability and cannot gain one.

The tables below describe both: moby's default seccomp profile (June 2026) as the engine applies it
without CAP_SYS_ADMIN, its default capabilities, mounts and masked paths. AppArmor and SELinux are
not imitated. The root directory is an overlay above the machine's, so files written there vanish at
the end; /tmp and /var/tmp are new directories on the machine's disk. The only network is the
loopback.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import pathlib
import resource
import secrets
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile

from tests.unprivileged import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NEEDED_DIRECTORIES,
    ROOT,
    USER,
    check,
    closed_parent,
    environment,
    libc,
    mount,
)

CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
"""Capabilities that root keeps."""

# Calls that fail with EPERM. name: (x86_64, aarch64), None if the architecture has no such call.
REFUSED_CALLS: dict[str, tuple[int | None, int | None]] = {
    # namespaces and mounts, which take CAP_SYS_ADMIN
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # other calls that take CAP_SYS_ADMIN, or one of CAP_BPF, CAP_PERFMON, CAP_SYSLOG
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # other processes: CAP_SYS_PTRACE; ptrace and process_vm_readv are allowed since Linux 4.8
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    # CAP_DAC_READ_SEARCH
    "open_by_handle_at": (304, 265),
    # memory of NUMA nodes: CAP_SYS_NICE, or nobody
    "mbind": (237, 235),
    "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # the machine itself: CAP_SYS_MODULE, _BOOT, _RAWIO, _TIME, _PACCT, _TTY_CONFIG
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "iopl": (172, None),
    "ioperm": (173, None),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "acct": (163, 89),
    "vhangup": (153, 58),
    # refused to everybody
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
}
# Calls that are refused for some values of their first argument, and those values.
_CLONE, _NEW_NAMESPACES = (56, 220), 0x7E020000
_SOCKET, _REFUSED_FAMILIES = (41, 198), (socket.AF_VSOCK, socket.AF_ALG)
_PERSONALITY, _ALLOWED_PERSONALITIES = (135, 92), (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
# Calls that fail with ENOSYS: clone3, whose flags a filter cannot see, and calls newer than the
# profile.
_CLONE3 = (435, 435)
_LAST_KNOWN_CALL = 466

_READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
# Links that deploy/docker/Dockerfile makes in the image.
IMAGE_LINKS = {"mnt/data": "/proc/self/fd/900", "skills": "/proc/self/fd/902"}
_IMAGE_DATA_DIRECTORY = "var/lib/interpreter-bot"

_CLONE_NEWCGROUP, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x02000000, 0x04000000, 0x08000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_RDONLY, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 4, 8, 32
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_LAST_CAPABILITY = 63
_MAX_PLAIN_PROCESSES = 8192
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_MODE_FILTER = 2
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine, -1)
_ARCHITECTURE = (0xC000003E, 0xC00000B7)[_COLUMN]
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16


def main(command: list[str]) -> int:
    """Run `command` as the container's first process; returns its exit status."""
    is_plain = command[:1] == ["--plain"]
    command = command[is_plain:]
    if os.geteuid() or not command or _COLUMN < 0:
        sys.exit("usage, as root on x86-64 or ARM64: python -m tests.in_container COMMAND…")
    with tempfile.TemporaryDirectory(prefix="container-") as directory:
        namespaces = (
            _CLONE_NEWCGROUP | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
        )
        check(libc.unshare(namespaces), "unshare")
        child = os.fork()
        if not child:
            try:
                _enter(pathlib.Path(directory), command, is_plain=is_plain)
            except OSError as error:
                sys.stderr.write(f"{command[0]}: {error}\n")
            os._exit(127)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(child, number))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


def _enter(directory: pathlib.Path, command: list[str], *, is_plain: bool) -> None:
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = _mount_root(directory)
    _mount_devices(root)
    _mount_kernel_files(root)
    for name in ("tmp", "var/tmp"):
        (directory / name).mkdir(parents=True)
        mount(str(directory / name), str(root / name), None, MS_BIND)
        os.chmod(root / name, 0o1777)
    os.chdir(root)
    check(libc.syscall((155, 41)[_COLUMN], b".", b"."), "pivot_root")
    check(libc.umount2(b".", _MNT_DETACH), "umount2")
    host_name = secrets.token_hex(6)
    socket.sethostname(host_name)
    pathlib.Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {host_name}\n")
    _bring_loopback_up()
    home = tempfile.mkdtemp(prefix="home-", dir="/tmp")
    # A name for the plain user, without which PostgreSQL does not start.
    for name, entry in (("passwd", f":{USER}::{home}:/bin/sh"), ("group", ":")):
        with open(f"/etc/{name}", "a") as file:
            file.write(f"plain:x:{USER}{entry}\n")
    _install_filter()
    _drop_capabilities(() if is_plain else CAPABILITIES.values())
    if is_plain:
        # A node bounds the processes of a pod; without a bound, a fork bomb would hit the machine.
        resource.setrlimit(resource.RLIMIT_NPROC, (_MAX_PLAIN_PROCESSES, _MAX_PLAIN_PROCESSES))
        os.chown(home, USER, USER)
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    os.chdir(ROOT)
    # The parent, for example a shell's background job, may ignore some of these signals.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # The container ends with its parent.
    check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")
    os.execvpe(command[0], command, environment(home))


def _mount_root(directory: pathlib.Path) -> pathlib.Path:
    """Mount an overlay above the machine's root directory, with the links of the image."""
    layers, root = directory / "layers", directory / "root"
    layers.mkdir()
    root.mkdir()
    mount("layers", str(layers), "tmpfs", 0, "mode=0755")
    for name in ("upper", "work"):
        (layers / name).mkdir()
    mount(
        "overlay",
        str(root),
        "overlay",
        0,
        f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work",
    )
    for path in NEEDED_DIRECTORIES:
        inside = root / path.relative_to("/")
        if path.stat().st_dev != os.stat("/").st_dev:
            # The overlay does not include other file systems.
            inside.mkdir(parents=True, exist_ok=True)
            mount(str(path), str(inside), None, MS_BIND | MS_REC)
    for path in NEEDED_DIRECTORIES:
        # In an image, all users can reach the programs.
        while closed := closed_parent(root / path.relative_to("/")):
            closed.chmod(stat.S_IMODE(closed.stat().st_mode) | 0o011)
    for name, target in IMAGE_LINKS.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)
    # Hide the data of a bot that is installed on this machine.
    data = root / _IMAGE_DATA_DIRECTORY
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o711)
    os.chown(data, USER, USER)
    return root


def _mount_devices(root: pathlib.Path) -> None:
    devices = root / "dev"
    mount("tmpfs", str(devices), "tmpfs", MS_NOSUID, "mode=0755,size=64m")
    for name, minor in _DEVICES.items():
        _make_device(devices / name, os.makedev(1, minor))
    _make_device(devices / "tty", os.makedev(5, 0))
    for name, target in _DEVICE_LINKS.items():
        (devices / name).symlink_to(target)
    for name in ("pts", "mqueue", "shm"):
        (devices / name).mkdir()
    flags = MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    terminals = "newinstance,ptmxmode=0666,mode=0620,gid=5"
    mount("devpts", str(devices / "pts"), "devpts", MS_NOSUID | _MS_NOEXEC, terminals)
    mount("mqueue", str(devices / "mqueue"), "mqueue", flags)
    mount("shm", str(devices / "shm"), "tmpfs", flags, "mode=1777,size=64m")


def _make_device(path: pathlib.Path, device: int) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, device)
    path.chmod(0o666)


def _mount_kernel_files(root: pathlib.Path) -> None:
    """Mount /proc, /sys and the control groups, with Docker's masked and read-only paths."""
    flags = MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    mount("proc", str(root / "proc"), "proc", flags)
    mount("sysfs", str(root / "sys"), "sysfs", flags | _MS_RDONLY)
    groups = str(root / "sys/fs/cgroup")
    mount("cgroup", groups, "cgroup2", flags)
    mount(None, groups, None, flags | MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    for name in _READ_ONLY_PATHS:
        path = str(root / name[1:])
        if not os.path.exists(path):
            continue
        mount(path, path, None, MS_BIND | MS_REC)
        mount(None, path, None, flags | MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    for name in _MASKED_PATHS:
        path = root / name[1:]
        if path.is_dir():
            mount("tmpfs", str(path), "tmpfs", _MS_RDONLY, "size=0k")
        elif path.exists():
            mount(str(root / "dev/null"), str(path), None, MS_BIND)


def _bring_loopback_up() -> None:
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _drop_capabilities(remaining) -> None:
    """Give up all capabilities but `remaining`, for this process and all its descendants."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in remaining:
            # Fails, harmlessly, for capabilities that this Linux does not know.
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    # None are inheritable; a plain user loses the rest with the change of its user id.
    mask = sum(1 << capability for capability in CAPABILITIES.values())
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("6I", mask, mask, 0, 0, 0, 0)
    check(libc.syscall((126, 91)[_COLUMN], header, sets), "capset")


def _install_filter() -> None:
    """Install the seccomp filter; like Docker, without no_new_privs."""
    program = _build_filter()
    instructions = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    result = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(description), 0, 0)
    check(result, "seccomp")


def _build_filter() -> bytes:
    """Return the filter's BPF program, which decides by a call's number and first argument."""
    refuse, unknown = (
        _instruction(_RETURN, _ERRNO | errno.EPERM),
        _instruction(_RETURN, _ERRNO | errno.ENOSYS),
    )
    allow = _instruction(_RETURN, _ALLOW)
    argument = _instruction(_LOAD, _FIRST_ARGUMENT_OFFSET)
    # Calls of another architecture have other numbers.
    program = (
        _instruction(_LOAD, _ARCHITECTURE_OFFSET)
        + _instruction(_EQUAL, _ARCHITECTURE, 1, 0)
        + refuse
    )
    program += (
        _instruction(_LOAD, _NUMBER_OFFSET)
        + _instruction(_GREATER, _LAST_KNOWN_CALL, 0, 1)
        + unknown
    )
    program += _instruction(_EQUAL, _CLONE3[_COLUMN], 0, 1) + unknown
    for numbers in REFUSED_CALLS.values():
        if numbers[_COLUMN] is not None:
            program += _instruction(_EQUAL, numbers[_COLUMN], 0, 1) + refuse
    rules = {
        _CLONE: _instruction(_ANY_BIT, _NEW_NAMESPACES, 0, 1) + refuse + allow,
        _SOCKET: b"".join(_instruction(_EQUAL, f, 0, 1) + refuse for f in _REFUSED_FAMILIES)
        + allow,
        _PERSONALITY: b"".join(
            _instruction(_EQUAL, p, 0, 1) + allow for p in _ALLOWED_PERSONALITIES
        )
        + refuse,
    }
    for numbers, rule in rules.items():
        rule = argument + rule
        program += _instruction(_EQUAL, numbers[_COLUMN], 0, len(rule) // 8) + rule
    return program + allow


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
