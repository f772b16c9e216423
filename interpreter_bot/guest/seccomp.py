"""The seccomp filter, which denies calls that attacks on Linux use and analysis never needs.

It is a deny list, because an allow list would break packages that people install. Denied calls fail
with EPERM, which code sees as an exception, or with ENOSYS if libraries then use an older call.
Calls newer than this list fail with ENOSYS, too. Calls of another architecture kill the process.

The filter is a BPF program, concatenated from rules. At the start of a rule, the call's number is
loaded; the rule may load an argument instead. It ends with the verdict on the call (allow, fail,
supervise), or with `_CONTINUE`, which loads the number again for the next rule.
"""

from __future__ import annotations

import errno
import functools
import os
import struct
from collections.abc import Mapping
from typing import TypeAlias

PINNED_DESCRIPTORS = range(900, 906)
"""Descriptors of the directories of a session without mounts."""

_CallNumbers: TypeAlias = tuple[int | None, int | None]
"""Numbers of a call on x86_64 and aarch64; None if the architecture lacks the call."""

_DENIED_CALLS: dict[str, _CallNumbers] = {
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "open_tree_attr": (467, 467),
    # other processes' memory and handles
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # large attack surfaces of Linux
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "vmsplice": (278, 75),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "nfsservctl": (180, 42),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "lsm_set_self_attr": (460, 460),
    "memfd_secret": (447, 447),
    "personality": (135, 92),
    # clocks, identity, NUMA, special files
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "ioprio_set": (251, 30),
    "move_pages": (279, 239),
    "mknod": (133, None),
    "mknodat": (259, 33),
    # choosing other processors, if no cgroup limits the session's processor time
    "sched_setaffinity": (203, 122),
    # memory in Linux that older versions charge to no cgroup
    "msgget": (68, 186),
    "semget": (64, 190),
    # memory that no process has to map, so that only cgroups can count it
    "shmget": (29, 194),
}
# These calls reach objects and processes of other sessions in the container, some by numbers that
# can be guessed.
_DENIED_WITHOUT_NAMESPACES: dict[str, _CallNumbers] = {
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "get_robust_list": (274, 100),
    "sched_setattr": (314, 274),
}
# If sessions have the bot's user id, Landlock does not keep them from changing modes, groups and
# attributes of the bot's files that they may read. These calls are ignored, because programs seldom
# handle an error.
_IGNORED_WITH_SHARED_ID: dict[str, _CallNumbers] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
}
_UNSUPPORTED_WITH_SHARED_ID: dict[str, _CallNumbers] = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
_ABSENT_WITH_SHARED_ID: dict[str, _CallNumbers] = {
    "fchmodat2": (452, 452),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
# Fail with ENOSYS, so that libraries fall back to an older call.
_ABSENT_CALLS: dict[str, _CallNumbers] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # The number of contexts is limited for the whole machine.
    "io_setup": (206, 0),
    "io_pgetevents": (333, 292),
    # The number of instances is limited for each user of the host, and sessions may share root's.
    # Watching a shared file would also tell a session what others do.
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    # Rules and programs take megabytes of Linux's memory; seccomp programs share one pool, without
    # which no filter could be installed.
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "seccomp": (317, 277),
    # Moving pages between pipes, sockets and files is a large attack surface; libraries then copy.
    "splice": (275, 76),
    "tee": (276, 77),
    # Memory that need not be mapped, as of shmget; libraries fall back to temporary files.
    "memfd_create": (319, 279),
}
# Number of the newest call that was reviewed: file_setattr, of Linux 6.17.
_LAST_REVIEWED_NUMBER = 469

_CLONE = (56, 220)
_IOCTL = (16, 29)
_SOCKET_CALLS = ((41, 198), (53, 199))  # socket, socketpair
_CONNECT = (42, 203)
# Sessions must not listen: a socket would get a port of the container.
_LISTEN_CALLS = ((49, 200), (50, 201))  # bind, listen
_SETSOCKOPT = (54, 208)
_GETSOCKOPT = (55, 209)
_PRCTL = (157, 167)
_FCNTL = (72, 25)
_F_SETFD = 2
_CLOSE_RANGE = (436, 436)
_CLOSE = (3, 57)
_DUP_CALLS = ((33, None), (292, 24))  # dup2, dup3
_PRLIMIT = (302, 261)
_SETPRIORITY = (141, 140)
_SCHEDULER_CALLS = ((144, 119), (142, 118))  # sched_setscheduler, sched_setparam
_UTIMENSAT = (280, 88)
_MMAP = (9, 222)
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _AND, _RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x54,
    0x06,
)
# Values that the program may return; the error number is added to `_ERRNO`.
_RETURN_ALLOW = 0x7FFF0000
_RETURN_KILL = 0x80000000
_ERRNO = 0x00050000
_RETURN_SUPERVISE = 0x7FC00000
# Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
_HIGH_HALF = 4
# Calls with flags, and the offset of the flags. Receiving need not be filtered.
_SEND_CALLS: dict[_CallNumbers, int] = {
    (44, 206): _FOURTH_ARGUMENT,  # sendto
    (46, 211): _THIRD_ARGUMENT,  # sendmsg
    (307, 269): _FOURTH_ARGUMENT,  # sendmmsg
}
# NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET, and NEWTIME.
_CLONE_NAMESPACES = 0x7E020000 | 0x80
# If a thread does not share its descriptors, /proc does not show them for its process.
_CLONE_THREAD, _CLONE_FILES = 0x10000, 0x400
_CLOSE_RANGE_UNSHARE = 2
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_SETVERSION, FS_IOC32_SETVERSION, FS_IOC_FSSETXATTR,
# FS_IOC_SET_ENCRYPTION_POLICY and FS_IOC_ENABLE_VERITY: an owner may set these for a file that is
# only readable, and sessions with the bot's user id own its files.
_FILE_ATTRIBUTES = (
    *(0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401C5820),
    *(0x800C6613, 0x40806685),
)
# Requests about interfaces, bridges, drivers and namespaces. No socket of a session belongs to the
# host's network, so this is a second wall.
_SIOC_FIRST, _SIOC_LAST = 0x890B, 0x89FF
# psutil requests the MTU of each interface first, and skips those that are missing.
_SIOCGIFMTU = 0x8921
_PR_SET_SECCOMP, _PR_FUTEX_HASH = 22, 78
# Change notifications of shared directories; and open-file-description locks, whose memory Linux
# does not count. The locks fail as in a version of Linux without them.
_F_NOTIFY, _F_OFD = 1026, (36, 37, 38)
# A process that opens a leased file has to wait for the lease's holder.
_F_SETLEASE = 1024
# MSG_FASTOPEN connects a socket without calling connect.
_MSG_OOB, _MSG_FASTOPEN = 1, 0x20000000
_MAP_HUGETLB = 0x40000
_SOL_IP, _SOL_SOCKET, _SOL_TCP = 0, 1, 6
# This option gives a socket to another protocol: SMC, or TLS in Linux.
_TCP_ULP = 31
# Linux refuses SO_SNDBUFFORCE and SO_RCVBUFFORCE to unprivileged callers.
_BUFFER_OPTIONS = (7, 8)  # SO_SNDBUF, SO_RCVBUF
# SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF and _REUSEPORT_EBPF use the same memory pool as seccomp.
_PROGRAM_OPTIONS = (26, 50, 51, 52)
_SO_PASSPIDFD, _SO_PEERPIDFD = 76, 77
_UNIX_FAMILY, _INTERNET_FAMILIES = 1, (2, 10)
_DOOR_FAMILY = 2
# 0 means the usual protocol of the type. Others (MPTCP, SMC, SCTP, DCCP, L2TP, …) are useless on a
# loopback, use more memory, and make the host load modules.
_INTERNET_PROTOCOLS = (0, 6, 17)  # TCP, UDP
_STREAM_PROTOCOLS = (0, 6)
_STREAM, _DATAGRAM, _RAW, _SEQUENCED_PACKETS, _TYPE_MASK = 1, 2, 3, 5, 0xF
# libzmq lists interfaces by the route protocol. Analysis does not need the others (audit,
# netfilter, generic, …), which are a large attack surface.
_NETLINK, _NETLINK_ROUTE = 16, 0


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Build a BPF instruction; a jump skips `if_true` or `if_false` instructions."""
    return struct.pack("HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    """Load the call's number or half of an argument, which the next instructions compare."""
    return _instruction(_LOAD, offset)


def _fail(error: int) -> bytes:
    """Let the call fail with this error; with 0, the call succeeds without any effect."""
    return _instruction(_RETURN, _ERRNO | error)


_ALLOW = _instruction(_RETURN, _RETURN_ALLOW)
_DENY = _fail(errno.EPERM)
_IGNORE = _fail(0)
_CONTINUE = _load(_NUMBER)


def _if_equal(value: int | None, body: bytes) -> bytes:
    """Run `body`, which ends the rule, if the loaded value is this one; nothing for None."""
    if value is None:
        return b""
    return _instruction(_JUMP_EQUAL, value, 0, len(body) // 8) + body


def _if_any_bit(bits: int, body: bytes) -> bytes:
    """Run `body`, which ends the rule, if the loaded value has any of these bits."""
    return _instruction(_JUMP_SET, bits, 0, len(body) // 8) + body


def _if_at_least(value: int, body: bytes) -> bytes:
    """Run `body`, which ends the rule, if the loaded value is at least this one."""
    return _instruction(_JUMP_GREATER_EQUAL, value, 0, len(body) // 8) + body


def _if_between(minimum: int, maximum: int, body: bytes) -> bytes:
    """Run `body`, which ends the rule, if the loaded value is in the range."""
    skip = len(body) // 8
    skip_above = _instruction(_JUMP_GREATER_EQUAL, maximum + 1, skip + 1, 0)
    return skip_above + _instruction(_JUMP_GREATER_EQUAL, minimum, 0, skip) + body


def _skip_if_at_least(value: int, body: bytes) -> bytes:
    """Run `body`, which need not end the rule, if the loaded value is below this one."""
    return _instruction(_JUMP_GREATER_EQUAL, value, len(body) // 8, 0) + body


def _unless_zero(body: bytes) -> bytes:
    """Run `body`, which ends the rule, if the loaded value is not 0."""
    return _instruction(_JUMP_EQUAL, 0, len(body) // 8, 0) + body


def _fail_if_in(values: tuple[int, ...], error: int = errno.EPERM) -> bytes:
    """Let the call fail for these loaded values, and allow it for all others."""
    return b"".join(_if_equal(value, _fail(error)) for value in values) + _ALLOW


def _dispatch(rules: Mapping[_CallNumbers, bytes], architecture_index: int) -> bytes:
    """Run the rule of the loaded call number, if it has one."""
    return b"".join(_if_equal(numbers[architecture_index], rule) for numbers, rule in rules.items())


def _common_rules(architecture_index: int) -> bytes:
    """Build the rules that check arguments in every session."""
    fcntl = _load(_SECOND_ARGUMENT) + _if_equal(_F_NOTIFY, _DENY)
    close_range = _load(_THIRD_ARGUMENT) + _if_any_bit(_CLOSE_RANGE_UNSHARE, _DENY)
    rules: dict[_CallNumbers, bytes] = {
        _CLONE: _clone_rule(),
        _IOCTL: _ioctl_rule(),
        _CLOSE_RANGE: close_range + _ALLOW,
        _FCNTL: fcntl + _fail_if_in(_F_OFD, errno.EINVAL),
        _PRCTL: _load(_FIRST_ARGUMENT) + _fail_if_in((_PR_SET_SECCOMP, _PR_FUTEX_HASH)),
        _SETSOCKOPT: _setsockopt_rule(),
        _GETSOCKOPT: _socket_level_rule(_fail_if_in((_SO_PEERPIDFD,))),
        _MMAP: _mmap_rule(),
        **{numbers: _socket_rule() for numbers in _SOCKET_CALLS},
        **{numbers: _send_rule(offset) for numbers, offset in _SEND_CALLS.items()},
    }
    return _dispatch(rules, architecture_index)


def _clone_rule() -> bytes:
    """Deny new namespaces, and threads that do not share their descriptors."""
    rule = _load(_FIRST_ARGUMENT) + _if_any_bit(_CLONE_NAMESPACES, _DENY)
    rule += _instruction(_AND, _CLONE_THREAD | _CLONE_FILES)
    return rule + _if_equal(_CLONE_THREAD, _DENY) + _ALLOW


def _ioctl_rule() -> bytes:
    """Deny terminal injection, attributes of files, and requests about network interfaces."""
    rule = _load(_SECOND_ARGUMENT) + _if_equal(_SIOCGIFMTU, _fail(errno.ENODEV))
    rule += _if_between(_SIOC_FIRST, _SIOC_LAST, _DENY)
    return rule + _fail_if_in((_TIOCSTI, _TIOCLINUX, *_FILE_ATTRIBUTES))


def _rules_without_namespaces(
    architecture_index: int, *, has_doors: bool, has_network: bool
) -> bytes:
    """Build the rules that replace namespaces."""
    network_rules = (
        _rules_with_network() if has_network else _rules_without_network(has_doors=has_doors)
    )
    return _dispatch(
        _pinned_descriptor_rules() | _priority_rules() | network_rules, architecture_index
    )


def _pinned_descriptor_rules() -> dict[_CallNumbers, bytes]:
    """Keep `PINNED_DESCRIPTORS` open and in place: paths of the session lead through them."""
    load_first, load_second = _load(_FIRST_ARGUMENT), _load(_SECOND_ARGUMENT)
    lowest, highest = PINNED_DESCRIPTORS[0], PINNED_DESCRIPTORS[-1]
    keep_inheritable = load_second + _if_equal(_F_SETFD, _IGNORE) + _ALLOW
    keep_number = load_second + _if_between(lowest, highest, _fail(errno.EBADF)) + _ALLOW
    # Libraries close all descriptors before they start a program. A call whose range has pinned
    # descriptors is ignored; the others are closed by the start of the program anyway.
    keep_range = load_second + _if_at_least(lowest, _IGNORE)
    return {
        _CLOSE: load_first + _if_between(lowest, highest, _IGNORE) + _ALLOW,
        _FCNTL: load_first + _if_between(lowest, highest, keep_inheritable) + _CONTINUE,
        _CLOSE_RANGE: load_first + _skip_if_at_least(highest + 1, keep_range) + _CONTINUE,
        **dict.fromkeys(_DUP_CALLS, keep_number),
    }


def _priority_rules() -> dict[_CallNumbers, bytes]:
    """Let a process change limits and priorities of itself only."""
    load_first, load_second = _load(_FIRST_ARGUMENT), _load(_SECOND_ARGUMENT)
    return {
        _PRLIMIT: load_first + _unless_zero(_DENY) + _ALLOW,
        _SETPRIORITY: load_first + _unless_zero(_DENY) + load_second + _unless_zero(_DENY) + _ALLOW,
        # libzmq calls these with the id of its own thread, and aborts if they fail.
        **dict.fromkeys(_SCHEDULER_CALLS, load_first + _unless_zero(_IGNORE) + _ALLOW),
    }


def _rules_with_network() -> dict[_CallNumbers, bytes]:
    """Deny Unix sockets, which could connect to the bot by a path; socket pairs cannot."""
    socket, socketpair = _SOCKET_CALLS
    deny_unix = _if_equal(_UNIX_FAMILY, _fail(errno.EAFNOSUPPORT))
    return {
        socket: _load(_FIRST_ARGUMENT) + deny_unix + _CONTINUE,
        socketpair: _socket_rule_without_namespaces(has_doors=False),
    }


def _rules_without_network(*, has_doors: bool) -> dict[_CallNumbers, bytes]:
    """Deny connections; with doors, code may create TCP sockets, and its keeper connects them."""
    # At level IP, a socket could join a multicast group, which the container's network would see.
    setsockopt = _load(_SECOND_ARGUMENT) + _if_equal(_SOL_IP, _fail(errno.ENOPROTOOPT))
    setsockopt += _if_equal(_SOL_TCP, _load(_THIRD_ARGUMENT) + _fail_if_in((_TCP_ULP,)))
    return {
        _SETSOCKOPT: setsockopt + _CONTINUE,
        _CONNECT: _instruction(_RETURN, _RETURN_SUPERVISE) if has_doors else _DENY,
        **dict.fromkeys(_SOCKET_CALLS, _socket_rule_without_namespaces(has_doors=has_doors)),
        **dict.fromkeys(_LISTEN_CALLS, _DENY),
    }


def _socket_rule_without_namespaces(*, has_doors: bool) -> bytes:
    """Allow connected Unix sockets and, with doors, TCP; the network looks unreachable."""
    load_type = _load(_SECOND_ARGUMENT) + _instruction(_AND, _TYPE_MASK)
    # No datagram sockets: they can send to any address without a connection.
    unix = load_type + _if_equal(_STREAM, _ALLOW) + _if_equal(_SEQUENCED_PACKETS, _ALLOW)
    unix += _fail(errno.EPROTONOSUPPORT)
    unreachable = _fail(errno.ENETUNREACH)
    protocols = b"".join(_if_equal(protocol, _ALLOW) for protocol in _STREAM_PROTOCOLS)
    tcp = load_type + _if_equal(_STREAM, _load(_THIRD_ARGUMENT) + protocols + unreachable)
    rule = _load(_FIRST_ARGUMENT) + _if_equal(_UNIX_FAMILY, unix)
    rule += _if_equal(_DOOR_FAMILY, tcp + unreachable) if has_doors else b""
    rule += b"".join(_if_equal(family, unreachable) for family in _INTERNET_FAMILIES)
    return rule + _fail(errno.EAFNOSUPPORT)


def _rules_with_shared_id(architecture_index: int) -> bytes:
    """Build the rules against changes of the bot's files that need no write access."""
    # utimensat is allowed for open files: then its path is null, in both halves of the address.
    high_half = _load(_SECOND_ARGUMENT + _HIGH_HALF) + _if_equal(0, _ALLOW) + _IGNORE
    utimensat = _load(_SECOND_ARGUMENT) + _if_equal(0, high_half) + _IGNORE
    deny_lease = _load(_SECOND_ARGUMENT) + _if_equal(_F_SETLEASE, _fail(errno.EINVAL))
    rules: list[tuple[_CallNumbers, bytes]] = [
        *((numbers, _IGNORE) for numbers in _IGNORED_WITH_SHARED_ID.values()),
        *((numbers, _fail(errno.EOPNOTSUPP)) for numbers in _UNSUPPORTED_WITH_SHARED_ID.values()),
        *((numbers, _fail(errno.ENOSYS)) for numbers in _ABSENT_WITH_SHARED_ID.values()),
        (_UTIMENSAT, utimensat),
        (_FCNTL, deny_lease + _CONTINUE),
    ]
    return _dispatch(dict(rules), architecture_index)


def _send_rule(offset: int) -> bytes:
    """Deny TCP Fast Open, and out-of-band data, whose code in Linux is rarely used."""
    flags = _load(offset) + _if_any_bit(_MSG_OOB | _MSG_FASTOPEN, _fail(errno.ENOTSUP))
    return flags + _ALLOW


def _socket_rule() -> bytes:
    """Allow a few socket families, with some types and protocols of each."""
    refuse = _fail(errno.EPROTONOSUPPORT)
    protocol = _load(_THIRD_ARGUMENT)
    netlink = protocol + _if_equal(_NETLINK_ROUTE, _ALLOW) + refuse
    allowed_protocols = b"".join(_if_equal(number, _ALLOW) for number in _INTERNET_PROTOCOLS)
    allowed_protocols = protocol + allowed_protocols + refuse
    internet = _load(_SECOND_ARGUMENT) + _instruction(_AND, _TYPE_MASK)
    # Linux itself refuses raw sockets, with the error that programs know.
    internet += (
        _if_equal(_RAW, _ALLOW)
        + _if_equal(_STREAM, allowed_protocols)
        + _if_equal(_DATAGRAM, allowed_protocols)
    )
    internet += refuse
    rule = _load(_FIRST_ARGUMENT) + _if_equal(_UNIX_FAMILY, _ALLOW) + _if_equal(_NETLINK, netlink)
    rule += b"".join(_if_equal(family, internet) for family in _INTERNET_FAMILIES)
    return rule + _fail(errno.EAFNOSUPPORT)


def _socket_level_rule(rule: bytes) -> bytes:
    """Run `rule` with the option's number loaded, if its level is SOL_SOCKET; else allow."""
    return _load(_SECOND_ARGUMENT) + _allow_unless(_SOL_SOCKET) + _load(_THIRD_ARGUMENT) + rule


def _allow_unless(value: int) -> bytes:
    """Allow the call unless the loaded value is this one."""
    return _instruction(_JUMP_EQUAL, value, 1, 0) + _ALLOW


def _setsockopt_rule() -> bytes:
    """Ignore changes of socket buffer sizes; deny BPF programs, and pidfds of the other end.

    Data in socket buffers belongs to no process, and cgroups of version 1 do not count it, so the
    buffers have fixed sizes. The process at the other end may be the bot.
    """
    ignore_sizes = b"".join(_if_equal(option, _IGNORE) for option in _BUFFER_OPTIONS)
    return _socket_level_rule(ignore_sizes + _fail_if_in((*_PROGRAM_OPTIONS, _SO_PASSPIDFD)))


def _mmap_rule() -> bytes:
    """Deny huge pages, which the host reserves for other programs, and which no limit counts."""
    return _load(_FOURTH_ARGUMENT) + _if_any_bit(_MAP_HUGETLB, _fail(errno.ENOMEM)) + _ALLOW


@functools.cache
def build(
    *,
    has_namespaces: bool = True,
    has_shared_id: bool = False,
    has_doors: bool = False,
    has_network: bool = False,
) -> bytes:
    """Build the BPF program for this machine.

    Args:
        has_namespaces: whether the session has namespaces; if not, more calls are denied.
        has_shared_id: whether the session has the bot's user id.
        has_doors: without namespaces, whether connections are supervised instead of denied.
        has_network: without namespaces, whether the session may use the container's network.

    Raises:
        OSError: there is no table for this machine's architecture.
    """
    machine = os.uname().machine
    if machine not in _AUDIT_ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    architecture_index = 0 if machine == "x86_64" else 1
    program = _load(_ARCHITECTURE)
    program += _instruction(_JUMP_EQUAL, _AUDIT_ARCHITECTURES[machine], 1, 0)
    program += _instruction(_RETURN, _RETURN_KILL)
    program += _load(_NUMBER)
    # This includes the numbers of x86-64's x32 table, which are far larger.
    program += _if_at_least(_LAST_REVIEWED_NUMBER + 1, _fail(errno.ENOSYS))
    program += _dispatch(
        dict.fromkeys(_ABSENT_CALLS.values(), _fail(errno.ENOSYS)), architecture_index
    )
    program += _dispatch(dict.fromkeys(_DENIED_CALLS.values(), _DENY), architecture_index)
    if not has_namespaces:
        denied_calls = dict.fromkeys(_DENIED_WITHOUT_NAMESPACES.values(), _DENY)
        program += _dispatch(denied_calls, architecture_index)
        program += _rules_without_namespaces(
            architecture_index, has_doors=has_doors, has_network=has_network
        )
    if has_shared_id:
        program += _rules_with_shared_id(architecture_index)
    return program + _common_rules(architecture_index) + _ALLOW
