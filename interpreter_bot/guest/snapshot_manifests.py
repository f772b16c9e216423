"""What a kernel tells the bot of variables: what it saved, did not save, or could not bring back.

`kernels/snapshot_manifests` reads it, and no more than is written here; of longer lists their
length is told. What `restore` needs beside the variables is written with it.
"""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Iterator
from typing import Any

from . import snapshot_children, snapshot_files, variable_pickler

_FORMAT = 1
# What the bot reads of a file; the rest of the entries is counted.
_MOST_BYTES = 256 * 1024
_LISTED = (200, 50, 10, 0)
_LISTED_CHARACTERS = 40


def write(
    directory: str,
    number: int,
    messages: list[snapshot_children.Message],
    lost: dict[str, str],
    failed: dict[str, str],
    key: bytes,
) -> None:
    """Wait until the disk has a generation; write what is in it, which counts from then on.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        messages: of who wrote and who read it.
        lost: what was not written, and why, beside what the messages say.
        failed: what was written but not read, and why.
        key: encrypts it, if there is one.
    """
    kept = [one for one in messages if "kept" in one and one["kept"] not in failed]
    details = {
        "python": platform.python_version_tuple()[:2],
        "skipped": list(failed),
        "kept": [one["kept"] for one in kept],
        "cells": {one["cell"]: one["text"] for one in messages if "cell" in one},
    }
    # Only now: the disk went on writing while the variables were read back.
    snapshot_files.sync(directory, number, {name for one in kept for name in one["blobs"]})
    content = json.dumps(details).encode()
    snapshot_files.write_document(directory, f"{number}/details.json", content, key)
    gone = {one["lost"]: one["why"] for one in messages if "lost" in one} | lost | failed
    for name in details["kept"]:
        # Its writer may have ended right behind it.
        gone.pop(name, None)
    manifest = _manifest(kept, gone, _parts(kept, messages))
    snapshot_files.write_document(directory, f"{number}/{snapshot_files.MANIFEST}", manifest, key)


def _parts(
    kept: list[snapshot_children.Message], messages: list[snapshot_children.Message]
) -> dict[str, str]:
    """Return what is missing in which variables that are kept."""
    parts = {one["kept"]: one["partly"] for one in kept}
    for one in messages:
        if one.get("of") in parts:
            parts[one["of"]] = list(dict.fromkeys(parts[one["of"]] + one["unread"]))
    return {name: ", ".join(words) for name, words in parts.items() if words}


def _manifest(
    kept: list[snapshot_children.Message], gone: dict[str, str], partly: dict[str, str]
) -> bytes:
    for most in _LISTED:
        manifest = {
            "format": _FORMAT,
            "kept": [one["kept"][:_LISTED_CHARACTERS] for one in itertools.islice(kept, most)],
            "kept_count": len(kept),
            "lost": dict(_shortened(gone, most)),
            "lost_count": len(gone),
            "partly": dict(_shortened(partly, most)),
            "partly_count": len(partly),
            "blobs": {name: size for message in kept for name, size in message["blobs"].items()},
        }
        content = _encoded(manifest)
        if len(content) <= _MOST_BYTES:
            break
    return content


def write_unsaved(directory: str, number: int, error: Exception, key: bytes) -> None:
    """Write why there is no such generation."""
    content = _encoded(variable_pickler.reason(error))
    snapshot_files.write_document(directory, f"{number}.unsaved", content, key)


def write_failures(directory: str, number: int, failed: dict[str, str], key: bytes) -> None:
    """Write what did not come back of a generation although it had been kept, and why."""
    content = _encoded(dict(_shortened(failed, _LISTED[0])))[:_MOST_BYTES]
    snapshot_files.write_document(directory, f"{number}/failed.json", content, key)


def _encoded(told: Any) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _shortened(told: dict[str, str], most: int) -> Iterator[tuple[str, str]]:
    for name, words in itertools.islice(told.items(), most):
        yield name[:_LISTED_CHARACTERS], words[: variable_pickler.REASON_CHARACTERS]
