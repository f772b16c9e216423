"""The seccomp filter: denies calls that analysis never needs and attacks on the host kernel use.

A deny list: an allow list is stronger, but breaks what people install. Denied calls fail with
EPERM, so that code gets an exception it can show, or with ENOSYS where a library then takes an
older call; so do calls newer than this list. Calls of another architecture kill.
"""

from __future__ import annotations

import errno
import functools
import os
import struct

PINNED = range(900, 906)
"""Descriptors that a session without mounts reaches its directories by."""

# name: (x86_64, aarch64), None where the architecture has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
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
    # large attack surfaces of the kernel
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
    # a session's share of the cores, where no cgroup holds it
    "sched_setaffinity": (203, 122),
    # kernel memory that older kernels charge to no cgroup
    "msgget": (68, 186),
    "semget": (64, 190),
    # memory that no process has to map, so that it is counted for nobody without a cgroup
    "shmget": (29, 194),
}
# What namespaces would do: these reach objects and processes that all sessions of a container
# share, some of them by numbers that can be guessed.
_DENIED_WITHOUT_NAMESPACES = {
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
# Where sessions have the bot's user id, Landlock does not keep them from changing modes, groups and
# attributes of the bot's files: by their paths, or once they are open, which takes the right to
# read them only. Programs take "done" better than a refusal.
_IGNORED_WITH_SHARED_ID = {
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
_UNSUPPORTED_WITH_SHARED_ID = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
_ABSENT_WITH_SHARED_ID = {
    "fchmodat2": (452, 452),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
# Answered with ENOSYS, so that libraries fall back to the older call.
_ABSENT = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # The number of contexts is limited for the whole machine.
    "io_setup": (206, 0),
    "io_pgetevents": (333, 292),
    # The number of instances is limited per user of the host, and those of root are shared with the
    # sessions; a watched file may be shared by all sessions, and tell one what another does.
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    # Rules and programs that a session would leave in the host kernel's memory by the megabyte, the
    # latter out of one pool, without which no seccomp filter could be installed.
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "seccomp": (317, 277),
    # Pages moved from pipe to socket to file: a large attack surface, and libraries copy without.
    "splice": (275, 76),
    "tee": (276, 77),
    # As shmget; libraries fall back to temporary files.
    "memfd_create": (319, 279),
}
# The last call that was reviewed: file_setattr, of Linux 6.17.
_NEWEST = 469

_CLONE = (56, 220)
_IOCTL = (16, 29)
_SOCKETS = ((41, 198), (53, 199))  # socket, socketpair
_CONNECT = (42, 203)
# Nobody may come to a session: a socket that listens without an address would get a port of the
# container's.
_SERVERS = ((49, 200), (50, 201))  # bind, listen
_SETSOCKOPT = (54, 208)
_GETSOCKOPT = (55, 209)
_PRCTL = (157, 167)
_FCNTL = (72, 25)
_F_SETFD = 2
_CLOSE_RANGE = (436, 436)
_CLOSE = (3, 57)
_DUPLICATES = ((33, None), (292, 24))  # dup2, dup3
_PRLIMIT = (302, 261)
_SETPRIORITY = (141, 140)
_SET_SCHEDULERS = ((144, 119), (142, 118))  # sched_setscheduler, sched_setparam
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
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_SUPERVISE = 0x7FC00000
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
_HIGH_HALF = 4
# Filtered by their flags. What was never sent out of band cannot be received so.
_SENDS = {
    (44, 206): _FOURTH_ARGUMENT,  # sendto
    (46, 211): _THIRD_ARGUMENT,  # sendmsg
    (307, 269): _FOURTH_ARGUMENT,  # sendmmsg
}
# NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET, and NEWTIME.
_NAMESPACES = 0x7E020000 | 0x80
# A thread that shares no descriptors holds files that its process's /proc does not show.
_THREAD, _SHARED_FILES = 0x10000, 0x400
_CLOSE_RANGE_UNSHARE = 2
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_SETVERSION, FS_IOC32_SETVERSION, FS_IOC_FSSETXATTR,
# FS_IOC_SET_ENCRYPTION_POLICY and FS_IOC_ENABLE_VERITY: an owner may set these of a file that he
# can only read, and where sessions have the bot's user id they own its files.
_FILE_ATTRIBUTES = (
    *(0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401C5820),
    *(0x800C6613, 0x40806685),
)
# Everything about interfaces, bridges, drivers and namespaces. No socket here is of the host's
# network, and this is a second wall before the code that would answer.
_SIOC_FIRST, _SIOC_BEYOND = 0x890B, 0x8A00
# What psutil asks first of each interface; one that is not there it passes over.
_SIOCGIFMTU = 0x8921
_PR_SET_SECCOMP, _PR_FUTEX_HASH = 22, 78
# Change notifications of directories that all share. And open-file-description locks, whose number
# and memory the kernel does not count; the answer is that of a kernel without them.
_F_NOTIFY, _F_OFD = 1026, (36, 37, 38)
# Whoever opens a file of a lease waits for its holder.
_F_SETLEASE = 1024
# The second connects, by a call that says nothing of it.
_MSG_OOB, _MSG_FASTOPEN = 1, 0x20000000
_MAP_HUGETLB = 0x40000
_SOL_IP, _SOL_SOCKET, _SOL_TCP = 0, 1, 6
# Hands a socket to another protocol: SMC, or TLS in the kernel.
_TCP_ULP = 31
# The variants that exceed the system's limits by force are refused to unprivileged callers.
_BUFFER_OPTIONS = (7, 8)  # SO_SNDBUF, SO_RCVBUF
# SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF: from the same pool as seccomp filters.
_PROGRAM_OPTIONS = (26, 50, 51, 52)
_SO_PASSPIDFD, _SO_PEERPIDFD = 76, 77
_UNIX, _INTERNET = 1, (2, 10)
_INTERNET_OF_DOORS = 2
# 0 is the usual one of the two. The others (MPTCP, SMC, SCTP, DCCP, L2TP, …) lead nowhere on a
# loopback, hold memory of their own, and make the host load modules.
_INTERNET_PROTOCOLS = (0, 6, 17)  # TCP, UDP
_STREAM_PROTOCOLS = (0, 6)
_STREAM, _DATAGRAM, _RAW, _SEQUENCED_PACKETS, _KIND = 1, 2, 3, 5, 0xF
# libzmq lists interfaces; the other netlink protocols (audit, netfilter, generic, …) list nothing
# that analysis needs and are a large part of the host kernel.
_NETLINK, _NETLINK_ROUTE = 16, 0


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _answer(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _only(number: int | None, body: bytes) -> bytes:
    """Run `body`, which ends in a return, for one call number; leaves the number loaded."""
    if number is None:
        return b""
    return _instruction(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _refused(numbers: tuple[int, ...], error: int = errno.EPERM) -> bytes:
    """Build the rule that refuses some values of what is loaded, and allows all others."""
    rule = b"".join(_only(number, _answer(error)) for number in numbers)
    return rule + _instruction(_RETURN, _ALLOW)


def _between(first: int, last: int, body: bytes) -> bytes:
    """Run `body`, which ends in a return, if what is loaded is in the range."""
    skip = len(body) // 8
    above = _instruction(_JUMP_GREATER_EQUAL, last + 1, skip + 1, 0)
    return above + _instruction(_JUMP_GREATER_EQUAL, first, 0, skip) + body


def _arguments(column: int) -> bytes:
    """Build the rules that check an argument; each returns for its own call."""
    allow = _instruction(_RETURN, _ALLOW)
    second, third = _instruction(_LOAD, _SECOND_ARGUMENT), _instruction(_LOAD, _THIRD_ARGUMENT)
    clone = _instruction(_LOAD, _FIRST_ARGUMENT) + _instruction(_JUMP_SET, _NAMESPACES, 0, 1)
    clone += _answer(errno.EPERM) + _instruction(_AND, _THREAD | _SHARED_FILES)
    clone += _instruction(_JUMP_EQUAL, _THREAD, 0, 1) + _answer(errno.EPERM) + allow
    ioctl = second + _only(_SIOCGIFMTU, _answer(errno.ENODEV))
    ioctl += _instruction(_JUMP_GREATER_EQUAL, _SIOC_BEYOND, 2, 0)
    ioctl += _instruction(_JUMP_GREATER_EQUAL, _SIOC_FIRST, 0, 1) + _answer(errno.EPERM)
    ioctl += _refused((_TIOCSTI, _TIOCLINUX, *_FILE_ATTRIBUTES))
    close_range = third + _instruction(_JUMP_SET, _CLOSE_RANGE_UNSHARE, 0, 1)
    close_range += _answer(errno.EPERM) + allow
    fcntl = second + _only(_F_NOTIFY, _answer(errno.EPERM)) + _refused(_F_OFD, errno.EINVAL)
    prctl = _instruction(_LOAD, _FIRST_ARGUMENT) + _refused((_PR_SET_SECCOMP, _PR_FUTEX_HASH))
    rules = {
        _CLONE: clone,
        _IOCTL: ioctl,
        _CLOSE_RANGE: close_range,
        _FCNTL: fcntl,
        _PRCTL: prctl,
        _SETSOCKOPT: _set_options(),
        _GETSOCKOPT: _of_sockets(_refused((_SO_PEERPIDFD,))),
        _MMAP: _no_huge_pages(),
        **{numbers: _sockets() for numbers in _SOCKETS},
        **{numbers: _in_order(offset) for numbers, offset in _SENDS.items()},
    }
    return b"".join(_only(numbers[column], rule) for numbers, rule in rules.items())


def _arguments_without_namespaces(column: int, *, has_doors: bool, has_network: bool) -> bytes:
    """Build the rules for what namespaces would do; they go on where they refuse nothing.

    `PINNED` descriptors cannot be closed or replaced: paths of the session lead through them. For
    doors there are sockets of TCP, which can do nothing by themselves: whoever supervises the
    session connects in their place.
    """
    offsets = _FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT
    first, second, third = (_instruction(_LOAD, offset) for offset in offsets)
    number, allow = _instruction(_LOAD, _NUMBER), _instruction(_RETURN, _ALLOW)
    lowest, highest = PINNED[0], PINNED[-1]
    is_own = _instruction(_JUMP_EQUAL, 0, 1, 0)
    keep_open = second + _only(_F_SETFD, _answer(0)) + allow
    kind = second + _instruction(_AND, _KIND)
    # A datagram can be sent to an address without a connection.
    kind += _only(_STREAM, allow) + _only(_SEQUENCED_PACKETS, allow)
    kind += _answer(errno.EPROTONOSUPPORT)
    # What code gets to read: the network is unreachable.
    closed = _answer(errno.ENETUNREACH)
    tcp = third + b"".join(_only(number, allow) for number in _STREAM_PROTOCOLS) + closed
    tcp = second + _instruction(_AND, _KIND) + _only(_STREAM, tcp) + closed
    families = first + _only(_UNIX, kind)
    families += _only(_INTERNET_OF_DOORS, tcp) if has_doors else b""
    families += b"".join(_only(family, closed) for family in _INTERNET)
    families += _answer(errno.EAFNOSUPPORT)
    # Of IP, a group could be joined, of which the container's network hears.
    level = second + _only(_SOL_IP, _answer(errno.ENOPROTOOPT))
    level += _only(_SOL_TCP, third + _refused((_TCP_ULP,))) + number
    # Libraries close everything before another program begins. What is not to be inherited closes
    # then by itself, so this may do nothing.
    spans = second + _instruction(_JUMP_GREATER_EQUAL, lowest, 0, 1) + _answer(0)
    rules = {
        _CLOSE: first + _between(lowest, highest, _answer(0)) + allow,
        _FCNTL: first + _between(lowest, highest, keep_open) + number,
        _CLOSE_RANGE: first
        + _instruction(_JUMP_GREATER_EQUAL, highest + 1, len(spans) // 8, 0)
        + spans
        + number,
        _PRLIMIT: first + is_own + _answer(errno.EPERM) + allow,
        _SETPRIORITY: first
        + is_own
        + _answer(errno.EPERM)
        + second
        + is_own
        + _answer(errno.EPERM)
        + allow,
        **{
            numbers: second + _between(lowest, highest, _answer(errno.EBADF)) + allow
            for numbers in _DUPLICATES
        },
        # libzmq calls these with the id of its own thread, and ends the process where it may not.
        **{numbers: first + is_own + _answer(0) + allow for numbers in _SET_SCHEDULERS},
        **dict.fromkeys(_SOCKETS, families),
    }
    if has_network:
        # By its path, it could connect to what the bot listens on. A pair is connected for good.
        rules[_SOCKETS[0]] = first + _only(_UNIX, _answer(errno.EAFNOSUPPORT)) + number
    else:
        connect = _instruction(_RETURN, _SUPERVISE) if has_doors else _answer(errno.EPERM)
        rules |= {_SETSOCKOPT: level, _CONNECT: connect}
        rules |= dict.fromkeys(_SERVERS, _answer(errno.EPERM))
    return b"".join(_only(numbers[column], rule) for numbers, rule in rules.items())


def _with_shared_id(column: int) -> bytes:
    """Build the rules for calls that change files which can only be read, or named."""
    named = _instruction(_LOAD, _SECOND_ARGUMENT) + _instruction(_JUMP_EQUAL, 0, 0, 3)
    named += _instruction(_LOAD, _SECOND_ARGUMENT + _HIGH_HALF)
    named += _instruction(_JUMP_EQUAL, 0, 0, 1) + _instruction(_RETURN, _ALLOW) + _answer(0)
    rules = [(numbers, _answer(0)) for numbers in _IGNORED_WITH_SHARED_ID.values()]
    rules += [
        (numbers, _answer(errno.EOPNOTSUPP)) for numbers in _UNSUPPORTED_WITH_SHARED_ID.values()
    ]
    rules += [(numbers, _answer(errno.ENOSYS)) for numbers in _ABSENT_WITH_SHARED_ID.values()]
    lease = _instruction(_LOAD, _SECOND_ARGUMENT) + _only(_F_SETLEASE, _answer(errno.EINVAL))
    rules += [(_UTIMENSAT, named), (_FCNTL, lease + _instruction(_LOAD, _NUMBER))]
    return b"".join(_only(numbers[column], rule) for numbers, rule in rules)


def _in_order(offset: int) -> bytes:
    """Build the rule against data out of band, rarely used and often flawed code of the kernel, and
    ahead of a connection.
    """
    flags = _instruction(_LOAD, offset)
    flags += _instruction(_JUMP_SET, _MSG_OOB | _MSG_FASTOPEN, 0, 1)
    return flags + _answer(errno.ENOTSUP) + _instruction(_RETURN, _ALLOW)


def _sockets() -> bytes:
    """Build the rule for socket families, and the types and protocols of each."""
    allow = _instruction(_RETURN, _ALLOW)
    refuse = _answer(errno.EPROTONOSUPPORT)
    protocol = _instruction(_LOAD, _THIRD_ARGUMENT)
    netlink = protocol + _only(_NETLINK_ROUTE, allow) + refuse
    known = protocol + b"".join(_only(number, allow) for number in _INTERNET_PROTOCOLS) + refuse
    internet = _instruction(_LOAD, _SECOND_ARGUMENT) + _instruction(_AND, _KIND)
    # Raw sockets get the system's own answer for any protocol: not permitted.
    internet += _only(_RAW, allow) + _only(_STREAM, known) + _only(_DATAGRAM, known) + refuse
    rule = _instruction(_LOAD, _FIRST_ARGUMENT) + _only(_UNIX, allow) + _only(_NETLINK, netlink)
    rule += b"".join(_only(family, internet) for family in _INTERNET)
    return rule + _answer(errno.EAFNOSUPPORT)


def _of_sockets(rule: bytes) -> bytes:
    """Build the rule for options at level SOL_SOCKET, by their number."""
    level = _instruction(_LOAD, _SECOND_ARGUMENT) + _instruction(_JUMP_EQUAL, _SOL_SOCKET, 1, 0)
    return level + _instruction(_RETURN, _ALLOW) + _instruction(_LOAD, _THIRD_ARGUMENT) + rule


def _set_options() -> bytes:
    """Build the rule that ignores changes of socket buffer sizes, and reports success.

    What waits in socket buffers is memory in no process mapping, which cgroups of version 1 do not
    count; fixed sizes keep it small. BPF programs are refused, and so are handles on the process at
    the other end, which may be the bot.
    """
    same = b"".join(_only(option, _answer(0)) for option in _BUFFER_OPTIONS)
    return _of_sockets(same + _refused((*_PROGRAM_OPTIONS, _SO_PASSPIDFD)))


def _no_huge_pages() -> bytes:
    """Build the rule against huge pages, which a host reserves for somebody and nobody counts."""
    flags = _instruction(_LOAD, _FOURTH_ARGUMENT)
    flags += _instruction(_JUMP_SET, _MAP_HUGETLB, 0, 1)
    return flags + _answer(errno.ENOMEM) + _instruction(_RETURN, _ALLOW)


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
        has_namespaces: of its own; without them, also deny calls that reach beyond the session.
        has_shared_id: it has the bot's user id.
        has_doors: without namespaces, its connections are supervised, rather than refused.
        has_network: without namespaces, it may use the network that it has.

    Raises:
        OSError: there is no table for this machine's architecture.
    """
    machine = os.uname().machine
    if machine not in _AUDIT_ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    column = 0 if machine == "x86_64" else 1
    program = _instruction(_LOAD, _ARCHITECTURE)
    program += _instruction(_JUMP_EQUAL, _AUDIT_ARCHITECTURES[machine], 1, 0)
    program += _instruction(_RETURN, _KILL)
    program += _instruction(_LOAD, _NUMBER)
    # The numbers of x86-64's x32 table are far beyond, too.
    program += _instruction(_JUMP_GREATER_EQUAL, _NEWEST + 1, 0, 1) + _answer(errno.ENOSYS)
    for absent in _ABSENT.values():
        program += _only(absent[column], _answer(errno.ENOSYS))
    for denied in _DENIED.values():
        program += _only(denied[column], _answer(errno.EPERM))
    if not has_namespaces:
        for denied in _DENIED_WITHOUT_NAMESPACES.values():
            program += _only(denied[column], _answer(errno.EPERM))
        program += _arguments_without_namespaces(
            column, has_doors=has_doors, has_network=has_network
        )
    if has_shared_id:
        program += _with_shared_id(column)
    return program + _arguments(column) + _instruction(_RETURN, _ALLOW)
