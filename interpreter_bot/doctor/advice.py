"""Advice: how to get a sandbox on this machine.

Trials decide whether a protection works (`diagnosis`). Files of /proc only choose the advice.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import subordinate_ids
from interpreter_bot.wording import doctor_words

_PROC: Final = pathlib.Path("/proc")


def advise(reason: str, sandbox: settings.Sandbox) -> str:
    """Return steps that make the sandbox work on this machine, after it failed for `reason`."""
    steps = [*_namespace_steps(), *_reason_steps(reason), *_id_steps(sandbox)]
    if not steps and is_container():
        steps.append(doctor_words.DOCKER)
    if not steps:
        steps.append(doctor_words.NAMESPACES_FORBIDDEN)
    if "code would run as root" in reason:
        steps.append(doctor_words.NOT_AS_ROOT)
    return " ".join(steps)


def _namespace_steps() -> list[str]:
    steps = []
    if not (_PROC / "self/ns/user").exists():
        steps.append(doctor_words.NO_USER_NAMESPACES)
    if _read_sysctl("user/max_user_namespaces") == "0":
        steps.append(doctor_words.allow_namespaces_by_sysctl("user.max_user_namespaces=15000"))
    if os.geteuid() != 0 and _read_sysctl("kernel/unprivileged_userns_clone") == "0":
        steps.append(doctor_words.allow_namespaces_by_sysctl("kernel.unprivileged_userns_clone=1"))
    if os.geteuid() != 0 and _read_sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        steps.append(doctor_words.APPARMOR)
    return steps


def _reason_steps(reason: str) -> list[str]:
    steps = []
    if "Function not implemented" in reason:
        steps.append(doctor_words.KERNEL_TOO_OLD)
    if "mount" in reason and "proc" in reason and not is_container():
        steps.append(doctor_words.PROC_COVERED)
    return steps


def _id_steps(sandbox: settings.Sandbox) -> list[str]:
    uid_map = _PROC / "self/uid_map"
    try:
        lines = uid_map.read_text("ascii").splitlines()
    except OSError:
        return []
    if subordinate_ids.choose_ids_in_namespace(sandbox, uid_map) is not sandbox:
        return []  # The sandbox uses another range of ids.
    last_uid = sandbox.first_uid + sandbox.uid_count - 1
    ranges = [(int(first_id), int(count)) for first_id, _, count in map(str.split, lines)]
    if os.geteuid() != 0 or any(
        first_id <= sandbox.first_uid and last_uid < first_id + count for first_id, count in ranges
    ):
        return []
    return [doctor_words.no_ids_in_namespace(sandbox.first_uid, last_uid)]


def is_container() -> bool:
    """Return whether this looks like the inside of a container."""
    return any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))


def _read_sysctl(name: str) -> str:
    try:
        return (_PROC / "sys" / name).read_text("ascii").strip()
    except OSError:
        return ""
