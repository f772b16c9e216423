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
    """Give a session's directories to user id `uid` of its next kernel. Blocks.

    No kernel runs in the workspace now, but earlier ones may have left traps: the owner of a link
    changes, never that of its target, and nothing outside a root or its file system is touched. The
    root changes last, so that an interrupted change is repeated. `kernel_uids` are all ids of
    kernels.

    Raises:
        OSError: a directory cannot be opened.
    """
    for root in roots:
        _change_owner(root, uid, kernel_uids)


def _change_owner(root: pathlib.Path, uid: int, kernel_uids: Container[int]) -> None:
    with workspace_io.root_descriptor(root) as descriptor:
        if os.fstat(descriptor).st_uid == uid:
            return
        # The fork server must be able to walk through both parents, which it does not own.
        for directory in (root.parent, root.parent.parent):
            directory.chmod(0o711)
        failure_count = _change_owner_below(descriptor, uid, kernel_uids)
        os.fchown(descriptor, uid, uid)
    if failure_count:
        _log.warning("the owner of %d files of a session could not be changed", failure_count)


def _change_owner_below(root: int, uid: int, kernel_uids: Container[int]) -> int:
    """Change the owner of everything below a directory, and return the number of failures."""
    failure_count = 0
    pending_paths = [b""]
    while pending_paths:
        path = pending_paths.pop()
        try:
            directory = safe_open.open_directory(root, path)
        except OSError:
            # The path is too long, or leads to another file system.
            failure_count += 1
            continue
        try:
            for name in map(os.fsencode, os.listdir(directory)):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if _may_have_links_elsewhere(status, kernel_uids):
                    failure_count += 1
                    continue
                try:
                    os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
                except PermissionError:
                    # The file is immutable.
                    failure_count += 1
                if stat.S_ISDIR(status.st_mode):
                    pending_paths.append(path + b"/" + name if path else name)
        finally:
            os.close(directory)
    return failure_count


def _may_have_links_elsewhere(status: os.stat_result, kernel_uids: Container[int]) -> bool:
    """Return whether a file may have hard links outside: it has several, and is not a kernel's.

    A kernel can create hard links only to its own files; the bot creates them only among
    checkpoints, whose owner never changes.
    """
    has_other_links = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
    return has_other_links and status.st_uid not in kernel_uids
