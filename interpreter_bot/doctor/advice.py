"""Advice: how to get a sandbox on this machine.

Whether a protection works is decided in `diagnosis`; files of /proc only choose the sentences.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import subordinate_ids
from interpreter_bot.wording import doctor_words

_PROC: Final = pathlib.Path("/proc")


def advice_for(reason: str, sandbox: settings.Sandbox) -> str:
    """Return how to make the sandbox work on this machine, after it failed for `reason`."""
    steps = [*_about_namespaces(), *_about_reason(reason), *_about_ids(sandbox)]
    if not steps and is_container():
        steps.append(doctor_words.DOCKER)
    if not steps:
        steps.append(doctor_words.NAMESPACES_FORBIDDEN)
    if "code would run as root" in reason:
        steps.append(doctor_words.NOT_AS_ROOT)
    return " ".join(steps)


def _about_namespaces() -> list[str]:
    steps = []
    if not (_PROC / "self/ns/user").exists():
        steps.append(doctor_words.NO_USER_NAMESPACES)
    if _sysctl("user/max_user_namespaces") == "0":
        steps.append(doctor_words.allow_namespaces_by_sysctl("user.max_user_namespaces=15000"))
    if os.geteuid() != 0 and _sysctl("kernel/unprivileged_userns_clone") == "0":
        steps.append(doctor_words.allow_namespaces_by_sysctl("kernel.unprivileged_userns_clone=1"))
    if os.geteuid() != 0 and _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        steps.append(doctor_words.APPARMOR)
    return steps


def _about_reason(reason: str) -> list[str]:
    steps = []
    if "Function not implemented" in reason:
        steps.append(doctor_words.KERNEL_TOO_OLD)
    if "mount" in reason and "proc" in reason and not is_container():
        steps.append(doctor_words.PROC_COVERED)
    return steps


def _about_ids(sandbox: settings.Sandbox) -> list[str]:
    uid_map = _PROC / "self/uid_map"
    try:
        lines = uid_map.read_text("ascii").splitlines()
    except OSError:
        return []
    if subordinate_ids.within_namespace(sandbox, uid_map) is not sandbox:
        return []  # The sandbox uses another range of ids.
    last = sandbox.first_uid + sandbox.uid_count - 1
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    if os.geteuid() != 0 or any(
        first <= sandbox.first_uid and last < first + count for first, count in ranges
    ):
        return []
    return [doctor_words.no_ids_in_namespace(sandbox.first_uid, last)]


def is_container() -> bool:
    """Return whether this looks like the inside of a container."""
    return any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))


def _sysctl(name: str) -> str:
    try:
        return (_PROC / "sys" / name).read_text("ascii").strip()
    except OSError:
        return ""
