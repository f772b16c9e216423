"""Layers on a disk that gets full."""

import errno
import pathlib

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels.packages import layers, lock_files

LOCK = (lock_files.LockedPackage("six", "1.17.0", ("0" * 64,), 1000),)


class Uv:
    """Unpacks one file."""

    async def unpack(self, lock, target, staging, person):
        target.mkdir()
        (target / "six.py").write_text("x")

    def check_size(self, directory):
        return 4096


async def test_a_layer_whose_size_could_not_be_recorded_is_built_again(tmp_path, monkeypatch):
    (staging := tmp_path / "staging").mkdir()
    layers.make_layers_directory(tmp_path)
    store = layers.Layers(
        tmp_path,
        staging,
        Uv(),
        max_bytes=10**6,
        reserve_bytes=0,
        platform="",
        used_names=lambda: (),
    )
    store.open()
    write_text = pathlib.Path.write_text

    def write_half(path, text, *args):
        write_text(path, "" if text == "4096" else text)
        if text == "4096":
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(pathlib.Path, "write_text", write_half)
    with pytest.raises(errors.PackagesError):
        await store.obtain(LOCK)
    monkeypatch.setattr(pathlib.Path, "write_text", write_text)
    name = await store.obtain(LOCK)
    assert [record[1:] for record in layers.list_records(tmp_path)] == [(name, 4096)]
    assert (store.directory / name / "six.py").exists()
    assert list(staging.iterdir()) == []
