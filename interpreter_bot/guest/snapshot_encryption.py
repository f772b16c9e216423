"""Encryption of a snapshot's files, where there is a key: AES-GCM, and for documents Fernet.

A file is a mark, a salt, and pieces: number, length, then that much encrypted and its tag. Where a
piece lies in the whole is authenticated with it, so none can be changed, moved or left out but at
the end; what must be there in the end is said by a document. Each file has a key of its own, of the
session's, its name and its salt: no other file and no other session's can stand in its place.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any

_MAGIC = b"IBSEAL1\n"
_SALT_BYTES = 16
_PIECE = struct.Struct("<QI")
_PLACE = struct.Struct("<QQ")
_TAG_BYTES = 16
_PIECE_BYTES = 1024 * 1024
# Smaller parts are gathered into one piece.
_SMALL_BYTES = 64 * 1024


class DamagedError(Exception):
    """A file is not what was written."""

    def __str__(self) -> str:
        return "its file was changed, or is damaged"


class FileCipher:
    """Encryption of what is appended to one file. What was given to it is never numbered again."""

    def __init__(self, key: bytes, name: str) -> None:
        """Begin a file.

        Args:
            key: of the session.
            name: of the file, below the directory of its snapshots.
        """
        salt = os.urandom(_SALT_BYTES)
        self.head = _MAGIC + salt
        self._cipher = _cipher(key, name, salt)
        self._number = 0

    def pieces(self, parts: Iterable[memoryview], at: int) -> Iterator[bytes | memoryview]:
        """Encrypt what is appended, in pieces.

        Args:
            parts: of it.
            at: how much of the file comes before it, not encrypted.
        """
        buffer = bytearray(_PIECE_BYTES + _TAG_BYTES)
        for piece in _gathered(parts):
            size = len(piece) + _TAG_BYTES
            self._number += 1
            target = memoryview(buffer)[:size]
            place = _PLACE.pack(at, len(piece))
            self._cipher.encrypt_into(_nonce(self._number), piece, place, target)
            yield _PIECE.pack(self._number, len(piece))
            yield target
            at += len(piece)


def read(path: str, key: bytes, name: str, *, is_check: bool) -> memoryview:
    """Decrypt a file as far as it is whole.

    Args:
        path: of the file.
        key: of the session.
        name: as when it was written.
        is_check: what is returned is read-only, and counts against no limit of data.

    Raises:
        DamagedError: it was not written so, from its beginning on.
    """
    with open(path, "rb", buffering=0) as file:
        head = file.read(len(_MAGIC) + _SALT_BYTES)
        if not head.startswith(_MAGIC) or len(head) < len(_MAGIC) + _SALT_BYTES:
            raise DamagedError
        size = _whole_bytes(file.fileno(), len(head))
        if not size:
            return memoryview(b"")
        flags = mmap.MAP_SHARED if is_check else mmap.MAP_PRIVATE
        view = memoryview(mmap.mmap(-1, size, flags=flags | mmap.MAP_ANONYMOUS))
        done = _decrypt(file, _cipher(key, name, head[len(_MAGIC) :]), view)
    if not done:
        raise DamagedError
    return view[:done].toreadonly() if is_check else view[:done]


def _decrypt(file: Any, cipher: Any, view: memoryview) -> int:
    """Decrypt pieces up to the first that is not whole; returns how much that is."""
    # Imported by whoever made the cipher.
    from cryptography import exceptions

    buffer = memoryview(bytearray(_PIECE_BYTES + _TAG_BYTES))
    done = 0
    while done < len(view):
        number, size = _PIECE.unpack(file.read(_PIECE.size))
        source = buffer[: size + _TAG_BYTES]
        if file.readinto(source) != len(source):
            break
        place = _PLACE.pack(done, size)
        try:
            cipher.decrypt_into(_nonce(number), source, place, view[done : done + size])
        except exceptions.InvalidTag:
            break
        done += size
    return done


def _whole_bytes(file: int, at: int) -> int:
    """Return how many bytes the whole pieces of a file hold, by what they say."""
    end = os.fstat(file).st_size
    total = 0
    while at + _PIECE.size <= end:
        _, size = _PIECE.unpack(os.pread(file, _PIECE.size, at))
        at += _PIECE.size + size + _TAG_BYTES
        if not 0 < size <= _PIECE_BYTES or at > end:
            break
        total += size
    return total


def blank(size: int) -> memoryview:
    """Return as many zeros, which take no memory."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))


def stored_bytes(size: int) -> int:
    """Return how long the file is that holds one buffer."""
    pieces = -(-size // _PIECE_BYTES)
    return len(_MAGIC) + _SALT_BYTES + size + pieces * (_PIECE.size + _TAG_BYTES)


def blob_name(key: bytes, digest: bytes) -> bytes:
    """Return a name of what has that digest, which tells nothing to who lacks the key."""
    return hmac.digest(key, b"blob " + digest, hashlib.sha256)


def seal(key: bytes, name: str, content: bytes) -> bytes:
    """Encrypt a document; `encryption.unseal` reads it, too."""
    return bytes(_fernet(key, name).encrypt(content))


def unseal(key: bytes, name: str, content: bytes) -> bytes:
    """Decrypt a document.

    Raises:
        DamagedError: it was not written so.
    """
    from cryptography import fernet

    try:
        return bytes(_fernet(key, name).decrypt(content))
    except fernet.InvalidToken as error:
        raise DamagedError from error


def _gathered(parts: Iterable[memoryview]) -> Iterator[memoryview]:
    small = bytearray()
    for part in parts:
        if part.nbytes < _SMALL_BYTES:
            small += part
            if len(small) < _PIECE_BYTES - _SMALL_BYTES:
                continue
            part = memoryview(b"")
        if small:
            yield memoryview(bytes(small))
            small.clear()
        for begin in range(0, part.nbytes, _PIECE_BYTES):
            yield part[begin : begin + _PIECE_BYTES]
    if small:
        yield memoryview(bytes(small))


def _fernet(key: bytes, name: str) -> Any:
    from cryptography import fernet

    return fernet.Fernet(base64.urlsafe_b64encode(_derived(key, f"document {name}".encode())))


def _cipher(key: bytes, name: str, salt: bytes) -> Any:
    # Only where something is encrypted: another environment may lack the library.
    from cryptography.hazmat.primitives.ciphers import aead

    return aead.AESGCM(_derived(key, b"file " + salt + name.encode()))


def _derived(key: bytes, of: bytes) -> bytes:
    return hmac.digest(key, of, hashlib.sha256)


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
