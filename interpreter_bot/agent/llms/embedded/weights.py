"""The model's file: which one it is, and that what lies on disk is that one.

A file of that name is used only if its SHA-256 is the one written here. A file of another name is
the operator's own choice, and has only to be a GGUF file.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import pathlib
import urllib.parse
from typing import Final

from interpreter_bot.agent import failures

_MAGIC: Final = b"GGUF"
_CHUNK_BYTES: Final = 8 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file of weights at its publisher's.

    Attributes:
        alias: what the server calls the model.
        title: what people call it.
        url: where the file is; redirects are followed.
        size_bytes: its length.
        sha256: lower-case hex digest.
        licence: the sentence that people are shown about it.
    """

    alias: str
    title: str
    url: str
    size_bytes: int
    sha256: str
    licence: str

    @property
    def file_name(self) -> str:
        """What it is called on disk."""
        return self.url.rpartition("/")[2]

    @property
    def host(self) -> str:
        """Who has it."""
        return urllib.parse.urlsplit(self.url).hostname or self.url


QWEN: Final = Weights(
    alias="qwen2.5-coder-1.5b-instruct",
    title="Qwen2.5-Coder 1.5B",
    url="https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size_bytes=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence="Qwen2.5-Coder-1.5B-Instruct is made by the Qwen team of Alibaba Cloud and used under "
    "the Apache License 2.0: "
    "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/blob/main/LICENSE",
)


class NoLocalModelError(failures.ModelError):
    """The demo model cannot be used."""


async def sha256(path: pathlib.Path) -> str:
    """Compute the digest of a file, without keeping the event loop from anything.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()

    def advance() -> bool:
        data = file.read(_CHUNK_BYTES)
        digest.update(data)
        return bool(data)

    with await asyncio.to_thread(path.open, "rb") as file:
        # A piece at a time, so that a bot that is told to end need not wait for all of it.
        while await asyncio.to_thread(advance):
            pass
    return digest.hexdigest()


async def is_official(path: pathlib.Path, wanted: Weights) -> bool:
    """Say whether a file is the wanted one.

    Raises:
        OSError: it cannot be read.
    """
    found = await asyncio.to_thread(path.stat)
    if found.st_size != wanted.size_bytes:
        return False
    return await sha256(path) == wanted.sha256


def objection(path: pathlib.Path) -> str:
    """Say why a file that the operator names cannot be the model; nothing where it can."""
    try:
        with path.open("rb") as file:
            is_model = file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        return f"The demo model's file cannot be read: {path}: {error.strerror or error}."
    return "" if is_model else f"The demo model's file is no GGUF file: {path}."


def given(path: pathlib.Path, official: Weights) -> Weights:
    """Describe a file that the operator names: one called like the official one has to be it."""
    if path.name == official.file_name:
        return official
    return dataclasses.replace(official, alias=path.stem, title=path.stem, licence="")
