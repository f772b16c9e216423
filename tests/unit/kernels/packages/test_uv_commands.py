"""What uv remembers of an index, which is forgotten once that is much."""

from __future__ import annotations

import asyncio

from interpreter_bot import settings
from interpreter_bot.kernels.packages import uv_commands


async def test_what_is_remembered_is_not_taken_from_whoever_began_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(uv_commands, "_MAX_CACHE_BYTES", 10)
    cache, staging = tmp_path / "cache", tmp_path / "staging"
    cache.mkdir()
    staging.mkdir()
    (cache / "much").write_bytes(b"x" * 100_000)
    uv = uv_commands.Uv(settings.PackageIndex(), None, tmp_path)
    trimming = asyncio.create_task(uv._trim_cache(cache, staging))
    await asyncio.sleep(0)
    uv._resolving_count = 1
    await trimming
    assert (cache / "much").exists()
    uv._resolving_count = 0
    await uv._trim_cache(cache, staging)
    assert not cache.exists()
    assert (staging / "former" / "much").exists(), "deleted with what was worked in"
    await uv._trim_cache(cache, staging)
