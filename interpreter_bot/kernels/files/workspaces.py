"""Workspaces: each session's own directory, which its code sees as /mnt/data.

All content is hostile, and may change during a scan. Files go by the names that
`scans.display_name` gives them: relative, harmless to print, and never two files of one name. No
method returns a path (except `directory`, for provisioning), so that a workspace can move to
another machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import secrets
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from typing import Protocol

from interpreter_bot import settings, values
from interpreter_bot.kernels.files import safe_open, scans, transfers

NAME_BYTES = 200
"""Longest name that `safe_name` gives, so that a number still fits into the system's 255."""

_DATA = "data"
_REMOVED = ".removed-"
_MOST_SKIPPED = 100
_OVERSHOOT = 2  # so that slightly over the limits is distinguished from far over
_SUFFIX = re.compile(r"(?:\.tar)?\.[^. ]{1,16}\Z")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d) *(?:\.|\Z)", re.IGNORECASE)


class Writable(Protocol):
    """Target of a file's copy; called in a thread."""

    def write(self, data: bytes, /) -> object:
        """Write all of `data`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Snapshot of a workspace's files, for `Workspace.changes_since` alone."""

    identities: Mapping[bytes, scans.Identity]
    is_truncated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """New and changed files since a mark.

    Attributes:
        files: regular files, by name; they may change again before they are read.
        skipped: (name, reason) of what will not be read; the reason ends the sentence
            "x was left out: …". At most 100.
        is_truncated: there is, or at the mark there was, more than was scanned, or more was
            skipped. What the mark did not scan may count as new now.
    """

    files: tuple[values.FileInfo, ...]
    skipped: tuple[tuple[str, str], ...]
    is_truncated: bool


def safe_name(name: str) -> str:
    """Make one harmless path component of any file name.

    The last part of a path, NFC, at most `NAME_BYTES` of UTF-8 with its suffix kept, without
    invisible characters and those with a meaning to shells, Windows or Markdown links, and never
    empty. Deterministic and idempotent.
    """
    text = re.split(r"[/\\]", name.rstrip("/\\ "))[-1]
    text = "".join(map(_harmless, unicodedata.normalize("NFC", text)))
    text = _trimmed(unicodedata.normalize("NFC", text))
    if _RESERVED.match(text):
        text = f"_{text}"
    suffix = found[0] if (found := _SUFFIX.search(text)) else ""
    stem = text[: len(text) - len(suffix)].encode()[: NAME_BYTES - len(suffix.encode())]
    return _trimmed(stem.decode(errors="ignore").rstrip(". ") + suffix) or "file"


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    if character in '<>:"|?*' or (character.isprintable() and not scans.is_plain(character)):
        return "_"
    return character if character.isprintable() else ""


def _trimmed(text: str) -> str:
    return re.sub(" +", " ", text).lstrip(".-~ ").rstrip(". ")


class Workspace:
    """One session's files. The directory above its root belongs to it alone as well.

    Every method raises WorkspaceError where the operating system refuses.
    """

    def __init__(self, root: pathlib.Path, limits: settings.Limits) -> None:
        self._root = root
        self._limits = limits

    @property
    def directory(self) -> pathlib.Path:
        """The host directory that becomes /mnt/data. For provisioning only."""
        return self._root

    @property
    def name(self) -> str:
        """Stable printable name from `Workspaces.name_of`; tells nothing about the session."""
        return self._root.parent.name

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        """Store a file that a person sent, under its `safe_name`.

        It appears whole or not at all. If the name is taken, the new file gets a number ("data
        (2).csv"): nothing is ever replaced.

        Returns:
            The file under the name it got.

        Raises:
            FileTooLargeError: it is over `upload_bytes`.
            WorkspaceFullError: it does not fit.
        """
        upload = transfers.Upload(self._root, safe_name(name), self._limits)
        try:
            await transfers.file_work(upload.begin)
            async for chunk in chunks:
                await transfers.file_work(upload.write, chunk)
            return await transfers.file_work(upload.commit)
        finally:
            await transfers.in_thread(upload.close)

    async def list(self) -> tuple[values.FileInfo, ...]:
        """List the regular files by name, among at most `workspace_files` entries."""
        found = await transfers.file_work(self._scan)
        return _sorted(entry.info for entry in found.entries if not entry.refusal)

    @contextlib.asynccontextmanager
    async def read(
        self, name: str, *, most_bytes: int | None = None
    ) -> AsyncIterator[transfers.Content]:
        """Open a file: `async with workspace.read(name) as content`, then iterate for chunks.

        Args:
            name: as listed.
            most_bytes: a larger file is refused; by default the largest one can make.

        Raises:
            FileMissingError: there is no such regular file.
            FileTooLargeError: it is larger than `most_bytes`.
        """
        if most_bytes is None:
            most_bytes = max(self._limits.file_bytes, self._limits.upload_bytes)
        content = transfers.Content(self._root, name, most_bytes=most_bytes)
        try:
            await transfers.file_work(content.begin)
            yield content
        finally:
            await transfers.in_thread(content.close)

    async def collect(
        self, info: values.FileInfo, into: Writable, *, most_bytes: int
    ) -> values.Artifact:
        """Copy a file that code made, with its present content.

        Args:
            info: the file; only its name counts.
            into: receives the bytes. What it raises is passed on.
            most_bytes: a larger file is refused before anything is copied.

        Raises:
            FileMissingError: there is no such regular file (any more).
            FileTooLargeError: it is larger than `most_bytes`, or sparse.
        """
        digest, size_bytes = hashlib.sha256(), 0
        async with self.read(info.name, most_bytes=most_bytes) as content:
            content.refuse_sparse()
            async for chunk in content:
                await transfers.in_thread(into.write, chunk)
                await transfers.in_thread(digest.update, chunk)
                size_bytes += len(chunk)
        return values.Artifact(info.name, size_bytes, digest.hexdigest())

    async def mark(self) -> Mark:
        """Take a snapshot of the present files."""
        found = await transfers.file_work(self._scan)
        identities = {entry.path: entry.identity for entry in found.entries}
        return Mark(identities, is_truncated=found.is_truncated)

    async def changes_since(self, mark: Mark) -> Changes:
        """Return what was created or written since a mark. Bounded as `list` is."""
        found = await transfers.file_work(self._scan)
        new = [e for e in found.entries if mark.identities.get(e.path) != e.identity]
        truncated = found.is_truncated or mark.is_truncated
        skipped = sorted((entry.info.name, entry.refusal) for entry in new if entry.refusal)
        return Changes(
            files=_sorted(entry.info for entry in new if not entry.refusal),
            skipped=tuple(skipped[:_MOST_SKIPPED]),
            is_truncated=truncated or len(skipped) > _MOST_SKIPPED,
        )

    async def usage(self) -> scans.DirectoryUsage:
        """Measure its disk usage, up to twice its limits. Quick, so call it often.

        Decisions by the figures should heed `is_uncountable` too: something is nested so deeply, or
        not permitted to be read, that they leave it out.
        """
        return await transfers.file_work(self._measure)

    async def remove(self) -> None:
        """Delete the workspace and everything in it; its kernel should be dead. Missing is fine."""
        await transfers.file_work(self._remove)

    def _scan(self) -> scans.Scan:
        with _opened(self._root) as root:
            return scans.scan(root, self._limits.workspace_files)

    def _measure(self) -> scans.DirectoryUsage:
        most_bytes, most_files = self._limits.workspace_bytes, self._limits.workspace_files
        with _opened(self._root) as root:
            return scans.measure(
                root, most_bytes=most_bytes, most_files=most_files, overshoot=_OVERSHOOT
            )

    def _remove(self) -> None:
        own = self._root.parent
        doomed = _REMOVED + secrets.token_hex(16)
        # Renamed first: the session may come back before the last file is deleted.
        with _opened(own.parent) as parent, contextlib.suppress(FileNotFoundError):
            os.rename(own.name, doomed, src_dir_fd=parent, dst_dir_fd=parent)
            safe_open.remove_tree(parent, doomed)


class Workspaces:
    """All workspaces, in one directory that only the bot may read."""

    def __init__(self, directory: pathlib.Path, limits: settings.Limits) -> None:
        self._directory = directory
        self._limits = limits

    @staticmethod
    def name_of(session_key: str) -> str:
        """Return the name of a session's workspace: 32 hex digits of a hash, for any key."""
        return hashlib.sha256(session_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    async def of(self, session_key: str) -> Workspace:
        """Return a session's workspace, created if missing, readable only by the bot."""
        workspace = self._named(self.name_of(session_key))
        await transfers.file_work(_make, workspace.directory)
        return workspace

    async def existing(self) -> tuple[Workspace, ...]:
        """List the existing workspaces, by name."""
        names = await transfers.file_work(self._names)
        return tuple(self._named(name) for name in names if re.fullmatch("[0-9a-f]{32}", name))

    async def sweep(self) -> None:
        """Clean up what a dead bot left half done. For the start, before anything else."""
        for workspace in await self.existing():
            await transfers.file_work(transfers.sweep, workspace.directory)
        await transfers.file_work(self._remove_leftovers)

    def _named(self, name: str) -> Workspace:
        return Workspace(self._directory / name / _DATA, self._limits)

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self._directory))
        return []

    def _remove_leftovers(self) -> None:
        for name in self._names():
            if name.startswith(_REMOVED):
                with _opened(self._directory) as parent:
                    safe_open.remove_tree(parent, name)


def _make(root: pathlib.Path) -> None:
    root.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.parent.mkdir(mode=0o700, exist_ok=True)
    root.mkdir(mode=0o700, exist_ok=True)


def _sorted(infos: Iterator[values.FileInfo]) -> tuple[values.FileInfo, ...]:
    return tuple(sorted(infos, key=lambda info: info.name))


@contextlib.contextmanager
def _opened(directory: pathlib.Path) -> Iterator[int]:
    descriptor = transfers.open_root(directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
