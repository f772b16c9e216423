"""Manifests of snapshots: a kernel's own list of the variables it saved, which is hostile input.

The kernel writes them (`guest/snapshot_files`) into its session's directory. Here they are bounded
and validated, and all text is made harmless before it is shown.
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

_MAX_BYTES: Final = 256 * 1024
_MAX_LISTED: Final = 200
_MAX_BLOBS: Final = 1000
_MAX_COUNT: Final = 10**6
_MAX_NAME_CHARACTERS: Final = 40
_MAX_REASON_CHARACTERS: Final = 120

_Text = Annotated[str, pydantic.Field(max_length=1000)]
_BlobName = Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{64}$")]
_Names = Annotated[list[_Text], pydantic.Field(max_length=_MAX_LISTED)]
_Entries = Annotated[dict[_Text, _Text], pydantic.Field(max_length=_MAX_LISTED)]
_Blobs = Annotated[dict[_BlobName, int], pydantic.Field(max_length=_MAX_BLOBS)]
_Count = Annotated[int, pydantic.Field(ge=0, le=_MAX_COUNT)]


def _clean_reason(text: str) -> str:
    return _clean_line(text, _MAX_REASON_CHARACTERS)


class Manifest(pydantic.BaseModel):
    """Content of one generation.

    Attributes:
        problem: why nothing was saved, harmless to print; empty if something was.
        is_disk_full: whether a full disk is the problem.
        kept: names of saved variables, at most the first 200 of `kept_count`.
        lost: names of lost variables with reasons, at most 200 of `lost_count`.
        partly: names of partly saved variables with their lost parts, at most 200 of
            `partly_saved_count`.
        blobs: sizes of the large buffers that it needs, by name.
    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True)

    format: Literal[4]
    problem: Annotated[_Text, pydantic.AfterValidator(_clean_reason)]
    is_disk_full: bool
    kept: _Names
    kept_count: _Count
    lost: _Entries
    lost_count: _Count
    partly: _Entries
    partly_saved_count: _Count
    blobs: _Blobs


_FAILURES_ADAPTER: Final = pydantic.TypeAdapter(_Entries)


def exists(workspace: workspaces.Workspace, number: int) -> bool:
    """Return whether a generation has a manifest, valid or not: then its save has ended.

    Raises:
        WorkspaceError, OSError: it cannot be read now.
    """
    return _read_content(workspace, number) is not None


def read(workspace: workspaces.Workspace, number: int) -> Manifest | None:
    """Read the manifest of a generation; None if it has no valid one.

    Raises:
        WorkspaceError, OSError: it cannot be read now.
    """
    content = _read_content(workspace, number)
    if content is None:
        return None
    try:
        if len(content) <= _MAX_BYTES:
            return Manifest.model_validate(json.loads(content))
    except (ValueError, RecursionError):
        # Not JSON, of another version of the bot, or damaged.
        pass
    _log.warning("session %s has no valid manifest of variables", workspace.name)
    return None


def read_failures(answer: str) -> tuple[tuple[str, str], ...]:
    """Read a kernel's answer: the variables that it could not restore, with reasons.

    Raises:
        KernelError: the answer is malformed.
    """
    try:
        return clean_entries(_FAILURES_ADAPTER.validate_json(json.loads(answer)))
    except (ValueError, TypeError, RecursionError) as error:
        raise errors.KernelError from error


def clean_entries(entries: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return names and reasons for people: one short line each."""
    return tuple((clean_name(name), _clean_reason(reason)) for name, reason in entries.items())


def clean_name(name: str) -> str:
    """Return the name of a variable for people."""
    return _clean_line(name, _MAX_NAME_CHARACTERS)


def summarize(
    manifest: Manifest, *, kernel: str, run_count: int, saved_at: float
) -> session_variables.SavedVariables:
    """Describe a generation with harmless text; `saved_at` is in seconds since the epoch."""
    return session_variables.SavedVariables(
        kernel_id=kernel,
        run_count=run_count,
        saved_at=saved_at,
        names=tuple(map(clean_name, manifest.kept)),
        kept_count=manifest.kept_count,
        lost=clean_entries(manifest.lost),
        lost_count=max(manifest.lost_count, len(manifest.lost)),
        partly_saved=clean_entries(manifest.partly),
        partly_saved_count=max(manifest.partly_saved_count, len(manifest.partly)),
    )


def _read_content(workspace: workspaces.Workspace, number: int) -> bytes | None:
    """Read a manifest, or the beginning of a too long one; None if there is none."""
    path = f"{number}/manifest.json".encode()
    try:
        with (
            workspace_io.root_descriptor(workspace.variables) as root,
            os.fdopen(safe_open.open_file(root, path), "rb") as file,
        ):
            return file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, errors.FileMissingError):
        return None


def _clean_line(text: str, max_characters: int) -> str:
    line = re.sub(r"\s+", " ", safe_text.sanitize(text[: 4 * max_characters]))
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
