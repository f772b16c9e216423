"""Manifests of archived sessions: what files and variables each had, signed with the shared key.

Of a session the one counts whose number is the highest: of the latest epoch, and the last of that.
A session that is forgotten has one without content, for as long as a machine may be away that still
has what was there before.
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
_EMPTY_SECONDS: Final = 90 * 24 * 3600.0
_ARRIVAL: Final = "arrived"
_KEY: Final = "snapshot-key"


class File(pydantic.BaseModel, frozen=True):
    """A file of a session: its path as hexadecimal digits of its bytes, and what it holds."""

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
    """What a session was; see `snapshot_generations` for the pointer."""

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
    """Use one key of snapshots on all machines: that of the first which came.

    Raises:
        SettingsError: this one has another key already.
        KernelError: the store cannot be used.
    """
    file = config.paths.data / _KEY
    shared = await store.read(_KEY)
    if shared is None:
        # Nothing new lies on this disk yet: another machine may come at the same moment.
        own = await asyncio.to_thread(snapshot_generations.stored_or_new_key, config)
        await store.create(_KEY, own.encode())
        shared = await store.read(_KEY) or own.encode()
    theirs = shared.decode()
    text = await asyncio.to_thread(private_files.read_or_create, file, lambda: theirs)
    if text != theirs:
        raise errors.SettingsError(host_words.STORE_HAS_OTHER_KEY)


async def numbers(store: shared_object_stores.SharedStore, name: str) -> list[str]:
    """Return the numbers of a session's manifests, the one that counts last."""
    names = [item.name.rpartition("/")[2] async for item in store.list(path(name, ""))]
    return sorted(filter(_NUMBER.fullmatch, names))


def epoch_of(number: str) -> int:
    """Return in which epoch a manifest was written."""
    return int(number.partition("-")[0])


async def write(
    store: shared_object_stores.SharedStore,
    manifest: Manifest,
    epoch: int,
    key: snapshot_generations.SnapshotKey,
) -> bool:
    """Let a manifest count, and delete those before it.

    Returns:
        False if there is one of a later epoch, and nothing was written.

    Raises:
        KernelError: the store cannot be used.
    """
    former, at = await numbers(store, manifest.session), time.time_ns()
    if former and epoch_of(former[-1]) > epoch:
        return False
    if former and epoch_of(former[-1]) == epoch:
        # A clock may have been set back.
        at = max(at, int(former[-1].partition("-")[2]) + 1)
    number = f"{epoch:012}-{at:020}"
    # What is there already is this one: an answer of the store was lost, and it was asked again.
    await store.create(path(manifest.session, number), signed(manifest, number, key))
    await store.delete(path(manifest.session, one) for one in former)
    return True


async def latest(
    store: shared_object_stores.SharedStore, name: str, *, listed: str = ""
) -> tuple[str, bytes] | None:
    """Return the number of a session's manifest that counts, and its content; None if it has none.

    Args:
        store: where it lies.
        name: of the session.
        listed: the number that counted just now; it may have been replaced since.

    Raises:
        KernelError: the store cannot be used.
    """
    while True:
        if listed and (data := await store.read(path(name, listed))) is not None:
            return listed, data
        all_numbers = await numbers(store, name)
        if not all_numbers:
            return None
        listed = all_numbers[-1]


async def sweep(store: shared_object_stores.SharedStore) -> None:
    """Delete content that no manifest names, and is not new, and manifests that do not count.

    Raises:
        KernelError: the store cannot be used, or nobody can tell.
    """
    now = await store.now()
    oldest = now - shared_object_stores.GRACE_SECONDS
    idle = [one async for one in store.list("blobs/") if one.at < oldest]
    # After the content was listed: what is named from now on was uploaded anew, or named before.
    counting: dict[str, shared_object_stores.StoredItem] = {}
    doomed: list[str] = []
    async for item in store.list("manifests/"):
        session, _, number = item.name.rpartition("/")
        if _NUMBER.fullmatch(number):
            former = counting.setdefault(session, item)
            counting[session] = max(former, item, key=lambda one: one.name)
            if former is not item:
                doomed.append(min(former.name, item.name))
    needed: set[str] = set()
    for item in counting.values():
        _, session, number = item.name.split("/")
        if (found := await latest(store, session, listed=number)) is None:
            continue
        # Also of one that is damaged, or that a later release wrote.
        needed |= {digest.decode() for digest in _DIGEST.findall(found[1])}
        try:
            is_empty = _parsed(found[1]).is_empty
        except errors.KernelError:
            _log.warning("the manifest %s in the store cannot be read", item.name)
            continue
        if is_empty and item.at < now - _EMPTY_SECONDS:
            doomed.append(item.name)
    await store.delete(doomed)
    unnamed = [one.name for one in idle if one.name.rpartition("/")[2] not in needed]
    await store.delete(unnamed, before=oldest)


def signed(manifest: Manifest, number: str, key: snapshot_generations.SnapshotKey) -> bytes:
    """Return a manifest as it is stored under a number."""
    content = manifest.model_dump_json()
    return f"{content}\n{key.sign(path(manifest.session, number), content)}".encode()


def read(name: str, number: str, data: bytes, key: snapshot_generations.SnapshotKey) -> Manifest:
    """Read a manifest of a session.

    Raises:
        KernelError: it is gone, or not signed by one of these machines for this session.
    """
    content, _, signature = data.decode("utf-8", "replace").rpartition("\n")
    if not hmac.compare_digest(key.sign(path(name, number), content).encode(), signature.encode()):
        raise errors.KernelError(host_words.STORE_UNSIGNED)
    manifest = _parsed(data)
    if manifest.session != name:
        raise errors.KernelError(host_words.STORE_UNSIGNED)
    return manifest


def _parsed(data: bytes) -> Manifest:
    """Read what a manifest says, whoever signed it."""
    try:
        return Manifest.model_validate_json(data.rpartition(b"\n")[0])
    except pydantic.ValidationError as error:
        raise errors.KernelError(host_words.STORE_UNSIGNED) from error


def path(name: str, number: str) -> str:
    """Return where a manifest of a session lies."""
    return f"manifests/{name}/{number}"


def arrival(workspace: workspaces.Workspace) -> tuple[int, bool]:
    """Return of which epoch a session's directory is, and whether it was brought here. Blocks."""
    text = private_files.read(workspace.directory.parent / _ARRIVAL)
    epoch, _, restored = text.partition(" ")
    return int(epoch or 0), restored == "restored"


def mark(workspace: workspaces.Workspace, epoch: int, *, is_restored: bool) -> None:
    """Note of which epoch a session's directory is. Blocks."""
    text = f"{epoch} {'restored' if is_restored else 'here'}"
    private_files.replace(workspace.directory.parent / _ARRIVAL, text)
