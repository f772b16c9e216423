"""Manifests of archived sessions: signed lists of each session's files and variables.

The manifest with the highest version is current: versions sort by epoch, then by time. A forgotten
session has an empty manifest, kept for 90 days in case an absent machine still has the session.
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

_DIGEST_PATTERN: Final = re.compile(rb"\b[0-9a-f]{64}\b")
# The epoch, and a time in nanoseconds.
_VERSION_PATTERN: Final = re.compile("[0-9]{12}-[0-9]{20}")
_KEEP_EMPTY_SECONDS: Final = 90 * 24 * 3600.0
_ARRIVAL_FILE_NAME: Final = "arrived"
_KEY_NAME: Final = "snapshot-key"


class File(pydantic.BaseModel, frozen=True):
    """A file of a session, with its path in hexadecimal digits and the digest of its content."""

    path: str = pydantic.Field(pattern=r"^([0-9a-f]{2})+$")
    size_bytes: int = pydantic.Field(ge=0)
    changed_ns: int
    sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")

    @pydantic.field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if {b"", b".", b".."} & set(bytes.fromhex(path).split(b"/")):
            raise ValueError
        return path


class Manifest(pydantic.BaseModel, frozen=True):
    """Content of a session; `snapshot_generations` explains the pointer."""

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
    """Use the first machine's key of snapshots on all machines.

    Raises:
        SettingsError: this machine has another key already.
        KernelError: the store cannot be used.
    """
    file = config.paths.data / _KEY_NAME
    stored_key = await store.read(_KEY_NAME)
    if stored_key is None:
        # Do not store the new key here yet: another machine may create another at the same moment.
        new_key = await asyncio.to_thread(snapshot_generations.stored_or_new_key, config)
        await store.create(_KEY_NAME, new_key.encode())
        stored_key = await store.read(_KEY_NAME) or new_key.encode()
    shared_key = stored_key.decode()
    own_key = await asyncio.to_thread(private_files.read_or_create, file, lambda: shared_key)
    if own_key != shared_key:
        raise errors.SettingsError(host_words.STORE_HAS_OTHER_KEY)


async def list_versions(store: shared_object_stores.SharedStore, name: str) -> list[str]:
    """Return the versions of a session's manifests, the current one last."""
    names = [item.name.rpartition("/")[2] async for item in store.list(manifest_path(name, ""))]
    return sorted(filter(_VERSION_PATTERN.fullmatch, names))


def epoch_of(version: str) -> int:
    return int(version.partition("-")[0])


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
    former_versions, time_ns = await list_versions(store, manifest.session), time.time_ns()
    if former_versions and epoch_of(former_versions[-1]) > epoch:
        return False
    if former_versions and epoch_of(former_versions[-1]) == epoch:
        # The clock may have been set back.
        time_ns = max(time_ns, int(former_versions[-1].partition("-")[2]) + 1)
    version = f"{epoch:012}-{time_ns:020}"
    # If the version exists, it is this manifest: the store's answer was lost, and we tried again.
    await store.create(manifest_path(manifest.session, version), sign(manifest, version, key))
    await store.delete(
        manifest_path(manifest.session, former_version) for former_version in former_versions
    )
    return True


async def read_latest(
    store: shared_object_stores.SharedStore, name: str
) -> tuple[str, bytes] | None:
    """Return the version and the content of a session's current manifest; None if it has none.

    Raises:
        KernelError: the store cannot be used.
    """
    while versions := await list_versions(store, name):
        # If the manifest has been replaced since, the new one is read.
        if (data := await store.read(manifest_path(name, versions[-1]))) is not None:
            return versions[-1], data
    return None


async def sweep(store: shared_object_stores.SharedStore) -> None:
    """Delete old content that no manifest names, and manifests that are not current.

    Raises:
        KernelError: the store cannot be used.
    """
    now = await store.now()
    min_written_at = now - shared_object_stores.GRACE_SECONDS
    old_blobs = [item async for item in store.list("blobs/") if item.written_at < min_written_at]
    # List manifests after blobs: a manifest that is written later names only blobs that were
    # uploaded since, or that present manifests name, too.
    current_manifests: dict[str, shared_object_stores.StoredItem] = {}
    deletable_names: list[str] = []
    async for item in store.list("manifests/"):
        session, _, version = item.name.rpartition("/")
        if _VERSION_PATTERN.fullmatch(version):
            known_item = current_manifests.setdefault(session, item)
            current_manifests[session] = max(known_item, item, key=lambda item: item.name)
            if known_item is not item:
                deletable_names.append(min(known_item.name, item.name))
    needed_digests: set[str] = set()
    for item in current_manifests.values():
        _, session, _ = item.name.split("/")
        if (current_manifest := await read_latest(store, session)) is None:
            continue
        # Search for digests instead of parsing: damaged manifests and those of later releases
        # count, too.
        needed_digests |= {
            digest.decode() for digest in _DIGEST_PATTERN.findall(current_manifest[1])
        }
        try:
            is_empty = _parse(current_manifest[1]).is_empty
        except errors.KernelError:
            _log.warning("the manifest %s in the store cannot be read", item.name)
            continue
        if is_empty and item.written_at < now - _KEEP_EMPTY_SECONDS:
            deletable_names.append(item.name)
    await store.delete(deletable_names)
    unneeded_names = [
        item.name for item in old_blobs if item.name.rpartition("/")[2] not in needed_digests
    ]
    await store.delete(unneeded_names, before=min_written_at)


def sign(manifest: Manifest, version: str, key: snapshot_generations.SnapshotKey) -> bytes:
    """Sign a manifest; return it as stored under a version."""
    content = manifest.model_dump_json()
    return f"{content}\n{key.sign(manifest_path(manifest.session, version), content)}".encode()


def parse_signed(
    name: str, version: str, data: bytes, key: snapshot_generations.SnapshotKey
) -> Manifest:
    """Parse a manifest of a session, and check its signature.

    Raises:
        KernelError: it was not signed by one of these machines for this session.
    """
    content, _, signature = data.decode("utf-8", "replace").rpartition("\n")
    if not hmac.compare_digest(
        key.sign(manifest_path(name, version), content).encode(), signature.encode()
    ):
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


def manifest_path(name: str, version: str) -> str:
    """Return the name of a session's manifest in the store."""
    return f"manifests/{name}/{version}"


def read_arrival(workspace: workspaces.Workspace) -> tuple[int, bool]:
    """Return the epoch of a session's directory, and whether it came from the store. Blocks."""
    text = private_files.read(workspace.directory.parent / _ARRIVAL_FILE_NAME)
    epoch, _, origin = text.partition(" ")
    return int(epoch or 0), origin == "restored"


def record_arrival(workspace: workspaces.Workspace, epoch: int, *, is_restored: bool) -> None:
    """Record the epoch of a session's directory, and whether it came from the store. Blocks."""
    text = f"{epoch} {'restored' if is_restored else 'here'}"
    private_files.replace(workspace.directory.parent / _ARRIVAL_FILE_NAME, text)
