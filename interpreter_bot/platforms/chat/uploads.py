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

_MAX_ALT_CHARACTERS: Final = 1000
_MIN_LIMIT_BYTES: Final = settings.MIB
"""No network has a lower limit: a smaller file that is refused is refused for another reason."""

UploadOrSentence: TypeAlias = transport.Upload | str
"""A file, or why it is not there."""


class UploadSpool:
    """Uploads of one answer.

    Attributes:
        is_forbidden: no files may be sent where the answer goes.
    """

    def __init__(self, markdown: markup.Markup, *, max_file_bytes: int) -> None:
        self._markdown = markdown
        self._max_file_bytes = max_file_bytes
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._shown_digests: set[str] = set()
        self._uploads_by_content: dict[tuple[str, int], transport.Upload] = {}
        self._prepared_by_name: dict[str, tuple[str, UploadOrSentence]] = {}
        self._refusal_reasons: dict[str, str] = {}
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
        """Record that the network refused files, so that they are not sent again as they are."""
        self._prepared_by_name.clear()
        self.is_forbidden |= error.is_forbidden
        if error.reason:
            self._refusal_reasons |= {upload.id: error.reason for upload in error.uploads}
            return
        largest_bytes = max(upload.size_bytes for upload in error.uploads)
        if largest_bytes > _MIN_LIMIT_BYTES:
            self._max_file_bytes = min(self._max_file_bytes, largest_bytes) // 2
        else:
            self._refusal_reasons |= {upload.id: "" for upload in error.uploads}

    def make_upload(self, name: str, alt: str, data: bytes) -> UploadOrSentence:
        """Make an upload of bytes in memory; the same one for the same bytes."""
        if self.is_forbidden:
            return self._left_out_line(name)
        version = hash(data)
        upload = self._uploads_by_content.get((name, version))
        if upload is None:
            upload = transport.Upload(
                id=name,
                version=version,
                name=self._markdown.file_name(name),
                size_bytes=len(data),
                content=data,
                alt=_alt_text(alt),
            )
            self._uploads_by_content[name, version] = upload
            self._shown_digests.add(hashlib.sha256(data).hexdigest())
        if upload.size_bytes <= self._max_file_bytes and upload.id not in self._refusal_reasons:
            return upload
        line = self._markdown.inline_code(name)
        if reason := self._refusal_reasons.get(upload.id):
            return file_words.not_sent(line, reason)
        return file_words.too_large_to_attach(line, len(data), self._max_file_bytes)

    async def prepare(self, file: events.FileMade) -> UploadOrSentence:
        """Return a file as it may be sent, compressed if it is too large; empty for none.

        What was shown as a picture already, byte for byte, is not sent a second time. A file
        without a copy is one of a former bot.
        """
        artifact = file.artifact
        sha256, prepared = self._prepared_by_name.get(artifact.name, ("", ""))
        if sha256 != artifact.sha256:
            prepared = await self._fit_file(artifact, file.copy)
            self._prepared_by_name[artifact.name] = artifact.sha256, prepared
        return prepared

    async def _fit_file(
        self, artifact: values.Artifact, path: pathlib.Path | None
    ) -> UploadOrSentence:
        if artifact.sha256 in self._shown_digests:
            return ""
        if self.is_forbidden:
            return self._left_out_line(artifact.name)
        if (reason := self._refusal_reasons.get(_upload_id(artifact.name))) is not None:
            if reason:
                return file_words.not_sent(self._markdown.inline_code(artifact.name), reason)
            return self._refusal_line(artifact, chat_words.FILE_REFUSED)
        if artifact.size_bytes <= self._max_file_bytes:
            return self._upload_of_path(artifact.name, path, artifact.size_bytes)
        if path is None:
            return self._upload_of_path(artifact.name, None, self._max_file_bytes, ".zip")
        zip_path = path.with_suffix(".zip")
        try:
            await asyncio.to_thread(
                _compress, path, zip_path, self._markdown.file_name(_base_name(artifact.name))
            )
        except OSError as error:
            _log.warning("a file could not be packed", exc_info=error)
            return self._refusal_line(artifact, chat_words.NOT_PACKED)
        zip_bytes = zip_path.stat().st_size
        if zip_bytes <= self._max_file_bytes:
            return self._upload_of_path(artifact.name, zip_path, zip_bytes, ".zip")
        zip_path.unlink()
        return self._refusal_line(
            artifact, file_words.compressed_too_large(zip_bytes, self._max_file_bytes)
        )

    def _upload_of_path(
        self, name: str, path: pathlib.Path | None, size_bytes: int, suffix: str = ""
    ) -> transport.Upload:
        # The id is that of the file: if its compressed form is refused, the file is.
        return transport.Upload(
            id=_upload_id(name),
            version=0,
            name=self._markdown.file_name(_base_name(name + suffix)),
            size_bytes=size_bytes,
            content=path or b"",
            alt=_alt_text(name + suffix),
            is_gone=path is None,
        )

    def _left_out_line(self, name: str) -> str:
        return self._markdown.small_print(f"📎 {self._markdown.inline_code(name)}")

    def _refusal_line(self, artifact: values.Artifact, reason: str) -> str:
        line = self._markdown.inline_code(artifact.name)
        return file_words.too_large_to_send(line, artifact.size_bytes, reason)


def _compress(path: pathlib.Path, zip_path: pathlib.Path, name: str) -> None:
    with zipfile.ZipFile(zip_path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.write(path, name)


def _base_name(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _upload_id(name: str) -> str:
    return f"file {name}"


def _alt_text(text: str) -> str:
    return quantities.one_line(text, _MAX_ALT_CHARACTERS)
