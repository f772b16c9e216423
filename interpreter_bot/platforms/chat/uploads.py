"""Files of one answer: on disk until it has been shown, fitted to what the network takes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import pathlib
import tempfile
import zipfile
from typing import Final, TypeAlias

from interpreter_bot import events, settings, values
from interpreter_bot.platforms.chat import markup, transport
from interpreter_bot.text import quantities
from interpreter_bot.wording import chat_words, file_words

_log = logging.getLogger(__name__)

_MAX_ALT: Final = 1000
_MIN_BYTES: Final = settings.MIB
"""A file that is refused though it is smaller is refused for another reason."""

UploadOrSentence: TypeAlias = transport.Upload | str
"""A file, or why it is not there."""


class UploadSpool:
    """Uploads of one answer.

    Attributes:
        is_forbidden: no files may be sent where the answer goes.
    """

    def __init__(self, marks: markup.Markup, *, file_bytes: int) -> None:
        self._marks = marks
        self._file_bytes = file_bytes
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._shown: set[str] = set()
        self._made: dict[tuple[str, int], transport.Upload] = {}
        self._prepared: dict[str, tuple[str, UploadOrSentence]] = {}
        self._refused: dict[str, str] = {}
        self.is_forbidden = False

    def close(self) -> None:
        """Delete everything."""
        if self._directory is not None:
            with contextlib.suppress(FileNotFoundError):
                self._directory.cleanup()

    @property
    def directory(self) -> pathlib.Path:
        """Where files lie until the answer has been shown."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="interpreter-bot-")
        return pathlib.Path(self._directory.name)

    def refuse(self, error: transport.FilesRefusedError) -> None:
        """Record that the network refused files: the largest, or any, is too large; or why else."""
        self._prepared.clear()
        self.is_forbidden |= error.is_forbidden
        if error.reason:
            self._refused |= {upload.id: error.reason for upload in error.uploads}
            return
        largest = max(upload.size_bytes for upload in error.uploads)
        if largest > _MIN_BYTES:
            self._file_bytes = min(self._file_bytes, largest) // 2
        else:
            self._refused |= {upload.id: "" for upload in error.uploads}

    def make(self, name: str, alt: str, data: bytes) -> UploadOrSentence:
        """Make an upload of bytes in memory; the same one for the same bytes."""
        if self.is_forbidden:
            return self._left_out_line(name)
        version = hash(data)
        known = self._made.get((name, version))
        if known is None:
            known = transport.Upload(
                id=name,
                version=version,
                name=self._marks.file_name(name),
                size_bytes=len(data),
                content=data,
                alt=_alt(alt),
            )
            self._made[name, version] = known
            self._shown.add(hashlib.sha256(data).hexdigest())
        if known.size_bytes <= self._file_bytes and known.id not in self._refused:
            return known
        line = self._marks.inline_code(name)
        if reason := self._refused.get(known.id):
            return file_words.not_sent(line, reason)
        return file_words.too_large_to_attach(line, len(data), self._file_bytes)

    async def prepare(self, file: events.FileMade) -> UploadOrSentence:
        """Return a file as it may be sent, compressed if it is too large; empty for none.

        What was shown as a picture already, byte for byte, is not sent a second time.
        """
        artifact = file.artifact
        if file.copy is None:
            return ""
        sha256, prepared = self._prepared.get(artifact.name, ("", ""))
        if sha256 != artifact.sha256:
            prepared = await self._fitted(artifact, file.copy)
            self._prepared[artifact.name] = artifact.sha256, prepared
        return prepared

    async def _fitted(self, artifact: values.Artifact, path: pathlib.Path) -> UploadOrSentence:
        if artifact.sha256 in self._shown:
            return ""
        if self.is_forbidden:
            return self._left_out_line(artifact.name)
        if (reason := self._refused.get(_id(artifact.name))) is not None:
            if reason:
                return file_words.not_sent(self._marks.inline_code(artifact.name), reason)
            return self._refusal(artifact, chat_words.FILE_REFUSED)
        if artifact.size_bytes <= self._file_bytes:
            return self._upload(artifact.name, path, artifact.size_bytes)
        packed = path.with_suffix(".zip")
        try:
            await asyncio.to_thread(
                _compress, path, packed, self._marks.file_name(_short(artifact.name))
            )
        except OSError as error:
            _log.warning("a file could not be packed", exc_info=error)
            return self._refusal(artifact, chat_words.NOT_PACKED)
        size = packed.stat().st_size
        if size <= self._file_bytes:
            return self._upload(f"{artifact.name}.zip", packed, size)
        packed.unlink()
        return self._refusal(artifact, file_words.compressed_too_large(size, self._file_bytes))

    def _upload(self, name: str, path: pathlib.Path, size_bytes: int) -> transport.Upload:
        return transport.Upload(
            id=_id(name),
            version=0,
            name=self._marks.file_name(_short(name)),
            size_bytes=size_bytes,
            content=path,
            alt=_alt(name),
        )

    def _left_out_line(self, name: str) -> str:
        return self._marks.small_print(f"📎 {self._marks.inline_code(name)}")

    def _refusal(self, artifact: values.Artifact, reason: str) -> str:
        line = self._marks.inline_code(artifact.name)
        return file_words.too_large_to_send(line, artifact.size_bytes, reason)


def _compress(path: pathlib.Path, packed: pathlib.Path, name: str) -> None:
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.write(path, name)


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _id(name: str) -> str:
    return f"file {name}"


def _alt(text: str) -> str:
    return quantities.one_line(text, _MAX_ALT)
