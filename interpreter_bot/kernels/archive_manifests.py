"""Manifests of archived sessions: what files and variables each had, signed with the shared key."""

from __future__ import annotations

import asyncio
import hmac
import re
from typing import Final

import pydantic

from interpreter_bot import errors, private_files, settings
from interpreter_bot.kernels import shared_stores, snapshot_keys
from interpreter_bot.kernels.files import workspaces

NUMBER: Final = re.compile("[0-9]{12}-[0-9]{20}")
"""Of a manifest: the epoch, and a time."""

_ARRIVAL: Final = "arrived"
_KEY: Final = "snapshot-key"
_OTHER_KEY: Final = (
    "The store of files that the machines share is signed with another key than snapshots of this "
    "data directory. Move its file snapshot-key aside, which gives up what is saved there."
)
_NOT_OURS: Final = "What the machines share of this conversation's files is not signed by them."


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


async def share_key(store: shared_stores.SharedStore, config: settings.Settings) -> None:
    """Use one key of snapshots on all machines: that of the first which came.

    Raises:
        SettingsError: this one has another key already.
        KernelError: the store cannot be used.
    """
    file = config.paths.data / _KEY
    shared = await store.read(_KEY)
    if shared is None:
        # Nothing new lies on this disk yet: another machine may come at the same moment.
        own = await asyncio.to_thread(snapshot_keys.stored_or_new, config)
        await store.create(_KEY, own.encode())
        shared = await store.read(_KEY) or own.encode()
    theirs = shared.decode()
    text = await asyncio.to_thread(private_files.read_or_create, file, lambda: theirs)
    is_same = await asyncio.to_thread(snapshot_keys.is_same, text, theirs, config)
    if not is_same:
        raise errors.SettingsError(_OTHER_KEY)


def signed(manifest: Manifest, number: str, key: snapshot_keys.SnapshotKey) -> bytes:
    """Return a manifest as it is stored under a number."""
    content = manifest.model_dump_json()
    return f"{content}\n{key.sign(path(manifest.session, number), content)}".encode()


def read(name: str, number: str, data: bytes, key: snapshot_keys.SnapshotKey) -> Manifest:
    """Read a manifest of a session.

    Raises:
        KernelError: it is gone, or not signed by one of these machines for this session.
    """
    content, _, signature = data.decode("utf-8", "replace").rpartition("\n")
    if not hmac.compare_digest(key.sign(path(name, number), content).encode(), signature.encode()):
        raise errors.KernelError(_NOT_OURS)
    try:
        manifest = Manifest.model_validate_json(content)
    except pydantic.ValidationError as error:
        raise errors.KernelError(_NOT_OURS) from error
    if manifest.session != name:
        raise errors.KernelError(_NOT_OURS)
    return manifest


def digests(data: bytes) -> set[str]:
    """Return what content a manifest names, whoever signed it.

    Raises:
        KernelError: it cannot be read.
    """
    try:
        manifest = Manifest.model_validate_json(data.rpartition(b"\n")[0])
    except pydantic.ValidationError as error:
        raise errors.KernelError(_NOT_OURS) from error
    return {one.sha256 for one in (*manifest.files, *manifest.variables)}


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
