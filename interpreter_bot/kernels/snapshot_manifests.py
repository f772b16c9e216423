"""Manifests of snapshots: what a kernel says it has saved, read as hostile.

The kernel writes them (`guest/snapshot_manifests`) into a directory of its session's. They are
bounded and validated here, and every word of them is made harmless before it is shown.
"""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Annotated, Final, Literal

import pydantic

from interpreter_bot import errors, session_variables
from interpreter_bot.kernels.files import safe_open, workspace_io, workspaces
from interpreter_bot.text import safe_text

_log = logging.getLogger(__name__)

_BYTES: Final = 256 * 1024
# Encrypted, it is longer by a third.
_READ_BYTES: Final = 384 * 1024
_MOST_LISTED: Final = 200
_MOST_BLOBS: Final = 1000
_MOST_COUNTED: Final = 10**6
_NAME_CHARACTERS: Final = 40
_WORDS_CHARACTERS: Final = 120

_Text = Annotated[str, pydantic.Field(max_length=1000)]
_BlobName = Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{64}$")]
_Names = Annotated[list[_Text], pydantic.Field(max_length=_MOST_LISTED)]
_Entries = Annotated[dict[_Text, _Text], pydantic.Field(max_length=_MOST_LISTED)]
_Blobs = Annotated[dict[_BlobName, int], pydantic.Field(max_length=_MOST_BLOBS)]
_Count = Annotated[int, pydantic.Field(ge=0, le=_MOST_COUNTED)]


class Manifest(pydantic.BaseModel):
    """What is in one generation.

    Attributes:
        kept: names, the first of `kept_count`.
        lost: what could not be kept, and why; the first of `lost_count`.
        partly: of what a part could not be kept, and which; the first of `partly_count`.
        blobs: sizes of the large buffers that it needs.
    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True)

    format: Literal[1]
    kept: _Names
    kept_count: _Count
    lost: _Entries
    lost_count: _Count
    partly: _Entries
    partly_count: _Count
    blobs: _Blobs


def manifest(workspace: workspaces.Workspace, number: int, data_key: str = "") -> Manifest | None:
    """Read the manifest of a generation; None if it has no valid one.

    Args:
        workspace: of the session.
        number: of the generation.
        data_key: decrypts it; empty where it is not encrypted.
    """
    told = _read(workspace, f"{number}/manifest.json", data_key)
    if told is None:
        return None
    try:
        return Manifest.model_validate(told)
    except pydantic.ValidationError:
        _log.warning("session %s has no valid manifest of variables", workspace.name)
        return None


def failures(workspace: workspaces.Workspace, number: int, data_key: str = "") -> dict[str, str]:
    """Read what a kernel could not bring back of a generation, and why; as `manifest` does."""
    told = _read(workspace, f"{number}/failed.json", data_key)
    if not isinstance(told, dict):
        return {}
    return {f"{name}": f"{why}" for name, why in list(told.items())[:_MOST_LISTED]}


def unsaved(workspace: workspaces.Workspace, number: int, data_key: str = "") -> str:
    """Read why a kernel wrote no generation, if it says so; as `manifest` does."""
    told = _read(workspace, f"{number}.unsaved", data_key)
    return _one_line(told, _WORDS_CHARACTERS) if isinstance(told, str) else ""


def harmless(told: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return names and words for people: one short line each."""
    return tuple((name_of(name), _one_line(why, _WORDS_CHARACTERS)) for name, why in told.items())


def name_of(name: str) -> str:
    """Return the name of a variable for people."""
    return _one_line(name, _NAME_CHARACTERS)


def summary(
    told: Manifest, *, kernel: str, runs: int, at: float
) -> session_variables.SavedVariables:
    """Return what is in a generation, in words that are harmless.

    Args:
        told: its manifest.
        kernel: id of the kernel that saved it.
        runs: how many pieces of code had run there.
        at: when, in seconds since the epoch.
    """
    return session_variables.SavedVariables(
        kernel=kernel,
        runs=runs,
        at=at,
        names=tuple(map(name_of, told.kept)),
        kept=told.kept_count,
        lost=harmless(told.lost),
        lost_count=max(told.lost_count, len(told.lost)),
        partly=harmless(told.partly),
        partly_count=max(told.partly_count, len(told.partly)),
    )


def _read(workspace: workspaces.Workspace, name: str, data_key: str) -> object:
    """Return the content of a JSON file that a kernel wrote; None if there is no valid one.

    Raises:
        WorkspaceError, OSError: nobody knows, as it cannot be read now.
    """
    try:
        root = workspace_io.open_root(workspace.variables)
    except FileNotFoundError:
        return None
    try:
        with os.fdopen(safe_open.open_file(root, name.encode()), "rb") as file:
            content = file.read(_READ_BYTES + 1)
        if data_key and len(content) <= _READ_BYTES:
            # Imported here: where nothing is encrypted, no kernel waits for it.
            from interpreter_bot import encryption

            content = encryption.unseal(bytes.fromhex(data_key), name, content)
        return json.loads(content) if len(content) <= _BYTES else None
    except (errors.FileMissingError, ValueError, RecursionError):
        return None
    finally:
        os.close(root)


def _one_line(text: str, most: int) -> str:
    line = re.sub(r"\s+", " ", safe_text.harmless(text[: 4 * most]))
    return line if len(line) <= most else f"{line[: most - 1]}…"
