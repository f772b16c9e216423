"""Manifests of archived sessions: lists of each session's files and variables, with signatures.

The manifest with the highest number is current: numbers sort by epoch, then by time. A forgotten
session has an empty manifest, for as long as a machine may be away that still has the session.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from typing import Final

import pydantic

from interpreter_bot import errors, private_files, settings
from interpreter_bot.kernels import shared_object_stores, snapshot_generations
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_DIGEST: Final = re.compile(rb"\b[0-9a-f]{64}\b")
_NUMBER: Final = re.compile("[0-9]{12}-[0-9]{20}")  # the epoch, and a time
_KEEP_EMPTY_SECONDS: Final = 90 * 24 * 3600.0
_ARRIVAL: Final = "arrived"
_KEY: Final = "snapshot-key"


class File(pydantic.BaseModel, frozen=True):
    """A file of a session, with its path in hexadecimal digits and the digest of its content."""

    path: str = pydantic.Field(pattern=r"^([0-9a-f]{2})+$")
    size_bytes: int = pydantic.Field(ge=0)
    changed_ns: int
    sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")

    @pydantic.field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if {b"", b".", b".."} & set(bytes.fromhex(path).split(b"/")):
            raise ValueError
        return path


class Manifest(pydantic.BaseModel, frozen=True):
    """Content of a session; see `snapshot_generations` for the pointer."""

    session: str
    files: tuple[File, ...]
    variables: tuple[File, ...]
    pointer: str
    packages: str

    @property
    def is_empty(self) -> bool:
        """Whether the session had nothing, or was forgotten."""
        return not (self.files or self.variables or self.pointer or self.packages)


async def share_key(store: shared_object_stores.SharedStore, config: settings.Settings) -> None:
    """Use the same key of snapshots on all machines: that of the first machine.

    Raises:
        SettingsError: this machine has another key already.
        KernelError: the store cannot be used.
    """
    file = config.paths.data / _KEY
    shared = await store.read(_KEY)
    if shared is None:
        # Do not store the new key here yet: another machine may create one at the same moment.
        own = await asyncio.to_thread(snapshot_generations.stored_or_new_key, config)
        await store.create(_KEY, own.encode())
        shared = await store.read(_KEY) or own.encode()
    shared_key = shared.decode()
    text = await asyncio.to_thread(private_files.read_or_create, file, lambda: shared_key)
    if text != shared_key:
        raise errors.SettingsError(host_words.STORE_HAS_OTHER_KEY)


async def numbers(store: shared_object_stores.SharedStore, name: str) -> list[str]:
    """Return the numbers of a session's manifests, the current one last."""
    names = [item.name.rpartition("/")[2] async for item in store.list(path(name, ""))]
    return sorted(filter(_NUMBER.fullmatch, names))


def epoch_of(number: str) -> int:
    return int(number.partition("-")[0])


async def write(
    store: shared_object_stores.SharedStore,
    manifest: Manifest,
    epoch: int,
    key: snapshot_generations.SnapshotKey,
) -> bool:
    """Store a manifest as the current one, and delete earlier ones.

    Returns:
        False if a manifest of a later epoch exists, so that nothing was written.

    Raises:
        KernelError: the store cannot be used.
    """
    former_numbers, time_ns = await numbers(store, manifest.session), time.time_ns()
    if former_numbers and epoch_of(former_numbers[-1]) > epoch:
        return False
    if former_numbers and epoch_of(former_numbers[-1]) == epoch:
        # The clock may have been set back.
        time_ns = max(time_ns, int(former_numbers[-1].partition("-")[2]) + 1)
    number = f"{epoch:012}-{time_ns:020}"
    # If the number exists, it is this manifest: an answer of the store was lost, and we retried.
    await store.create(path(manifest.session, number), signed(manifest, number, key))
    await store.delete(path(manifest.session, former_number) for former_number in former_numbers)
    return True


async def latest(
    store: shared_object_stores.SharedStore, name: str, *, number: str = ""
) -> tuple[str, bytes] | None:
    """Return the number and the content of a session's current manifest; None if it has none.

    If the caller has just listed the manifests, it passes the current `number`, which may have been
    replaced since.

    Raises:
        KernelError: the store cannot be used.
    """
    while True:
        if number and (data := await store.read(path(name, number))) is not None:
            return number, data
        all_numbers = await numbers(store, name)
        if not all_numbers:
            return None
        number = all_numbers[-1]


async def sweep(store: shared_object_stores.SharedStore) -> None:
    """Delete old content that no manifest names, and manifests that are not current.

    Raises:
        KernelError: the store cannot be used.
    """
    now = await store.now()
    oldest = now - shared_object_stores.GRACE_SECONDS
    old_blobs = [item async for item in store.list("blobs/") if item.written_at < oldest]
    # List manifests after blobs: a manifest written later names blobs that were uploaded since, or
    # that the present manifests name, too.
    current_manifests: dict[str, shared_object_stores.StoredItem] = {}
    deletable: list[str] = []
    async for item in store.list("manifests/"):
        session, _, number = item.name.rpartition("/")
        if _NUMBER.fullmatch(number):
            earlier = current_manifests.setdefault(session, item)
            current_manifests[session] = max(earlier, item, key=lambda item: item.name)
            if earlier is not item:
                deletable.append(min(earlier.name, item.name))
    needed_digests: set[str] = set()
    for item in current_manifests.values():
        _, session, number = item.name.split("/")
        if (current_manifest := await latest(store, session, number=number)) is None:
            continue
        # Search for digests, so that damaged manifests and those of later releases count, too.
        needed_digests |= {digest.decode() for digest in _DIGEST.findall(current_manifest[1])}
        try:
            is_empty = _parse(current_manifest[1]).is_empty
        except errors.KernelError:
            _log.warning("the manifest %s in the store cannot be read", item.name)
            continue
        if is_empty and item.written_at < now - _KEEP_EMPTY_SECONDS:
            deletable.append(item.name)
    await store.delete(deletable)
    unneeded = [
        item.name for item in old_blobs if item.name.rpartition("/")[2] not in needed_digests
    ]
    await store.delete(unneeded, before=oldest)


def signed(manifest: Manifest, number: str, key: snapshot_generations.SnapshotKey) -> bytes:
    """Return a manifest with its signature, as stored under a number."""
    content = manifest.model_dump_json()
    return f"{content}\n{key.sign(path(manifest.session, number), content)}".encode()


def read(name: str, number: str, data: bytes, key: snapshot_generations.SnapshotKey) -> Manifest:
    """Read a manifest of a session.

    Raises:
        KernelError: it was not signed by one of these machines for this session.
    """
    content, _, signature = data.decode("utf-8", "replace").rpartition("\n")
    if not hmac.compare_digest(key.sign(path(name, number), content).encode(), signature.encode()):
        raise errors.KernelError(host_words.STORE_UNSIGNED)
    manifest = _parse(data)
    if manifest.session != name:
        raise errors.KernelError(host_words.STORE_UNSIGNED)
    return manifest


def _parse(data: bytes) -> Manifest:
    """Parse a manifest without checking its signature."""
    try:
        return Manifest.model_validate_json(data.rpartition(b"\n")[0])
    except pydantic.ValidationError as error:
        raise errors.KernelError(host_words.STORE_UNSIGNED) from error


def path(name: str, number: str) -> str:
    """Return the name of a session's manifest in the store."""
    return f"manifests/{name}/{number}"


def read_arrival(workspace: workspaces.Workspace) -> tuple[int, bool]:
    """Return the epoch of a session's directory, and whether it came from the store. Blocks."""
    text = private_files.read(workspace.directory.parent / _ARRIVAL)
    epoch, _, restored = text.partition(" ")
    return int(epoch or 0), restored == "restored"


def record_arrival(workspace: workspaces.Workspace, epoch: int, *, is_restored: bool) -> None:
    """Record the epoch of a session's directory, and whether it came from the store. Blocks."""
    text = f"{epoch} {'restored' if is_restored else 'here'}"
    private_files.replace(workspace.directory.parent / _ARRIVAL, text)
