"""Ownership of a workspace's files, which pass from one kernel's user id to the next one's."""

from __future__ import annotations

import logging
import os
import pathlib
import stat
from collections.abc import Container, Iterable

from interpreter_bot.kernels.files import safe_open, workspace_io

_log = logging.getLogger(__name__)


def change_owner(roots: Iterable[pathlib.Path], uid: int, kernel_uids: Container[int]) -> None:
    """Make a session's files belong to the user id of its kernel. Blocks.

    Where all kernels have the bot's id, nothing changes. No kernel runs in the workspace now, but
    one did: ownership changes for links themselves, never for what they point to, and nothing
    outside a root or its file system is touched. The root changes last, so that an interrupted
    change is repeated.

    Args:
        roots: the session's directories.
        uid: the new owner.
        kernel_uids: all ids that kernels may have.

    Raises:
        OSError: one of them cannot be opened.
    """
    for root in roots:
        _change_owner(root, uid, kernel_uids)


def _change_owner(root: pathlib.Path, uid: int, kernel_uids: Container[int]) -> None:
    descriptor = workspace_io.open_root(root)
    try:
        if os.fstat(descriptor).st_uid == uid:
            return
        # The fork server, which owns neither directory, has to walk as far as the root.
        for directory in (root.parent, root.parent.parent):
            directory.chmod(0o711)
        failures = _change_owner_below(descriptor, uid, kernel_uids)
        os.fchown(descriptor, uid, uid)
    finally:
        os.close(descriptor)
    if failures:
        _log.warning("%d files of a session could not change hands", failures)


def _change_owner_below(root: int, uid: int, kernel_uids: Container[int]) -> int:
    """Change the owner of all below a directory; returns how many entries stayed as they were."""
    failures = 0
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        try:
            directory = safe_open.open_directory(root, path)
        except OSError:
            # Nested deeper than any path can name, or another file system.
            failures += 1
            continue
        try:
            for name in map(os.fsencode, os.listdir(directory)):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if _is_strange(status, kernel_uids):
                    failures += 1
                    continue
                try:
                    os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
                except PermissionError:
                    # It is immutable.
                    failures += 1
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path + b"/" + name if path else name)
        finally:
            os.close(directory)
    return failures


def _is_strange(status: os.stat_result, kernel_uids: Container[int]) -> bool:
    """Return whether a file has other names and no kernel's owner: those may lie elsewhere.

    A kernel can create hard links only to its own files; the bot creates them only among
    checkpoints, which never change hands.
    """
    has_names = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
    return has_names and status.st_uid not in kernel_uids
