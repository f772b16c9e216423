"""What every pool promises whoever holds a kernel: the real one, and the one of the tests."""

from __future__ import annotations

import contextlib

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import launchers, pools
from tests.fakes import pools as fakes

pytestmark = pytest.mark.kernel

CRASH = "import os; os._exit(3)"
CRASHED = values.Finished(values.Ending.CRASHED, 0.1, "It ended.", kernel_lost=True)


@contextlib.asynccontextmanager
async def _fake(tmp_path, short_path, *steps):
    pool = fakes.Pool(tmp_path / "workspaces", *steps)
    yield pool
    pool.close()


@contextlib.asynccontextmanager
async def _real(tmp_path, short_path, *steps):
    bot = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
    )
    async with pools.Pool.open(bot) as pool:
        yield pool


@pytest.fixture(params=[_fake, _real], ids=["fake", "real"])
def opened(request, tmp_path, short_path):
    """Open a pool; the steps are what the fake's kernels do."""
    return lambda *steps: request.param(tmp_path, short_path, *steps)


async def _run(kernel, code: str) -> values.Finished:
    return await kernel.execute(code, show=lambda _: None)


async def test_all_leases_of_a_session_give_the_same_kernel(opened):
    async with opened() as pool, pool.lease("a") as one, pool.lease("a") as two:
        assert await one.kernel() is await two.kernel()
        assert await one.kernel() is await pool.take("a")


async def test_sessions_have_kernels_of_their_own(opened):
    async with opened() as pool, pool.lease("a") as one, pool.lease("b") as two:
        assert await one.kernel() is not await two.kernel()


async def test_a_kernel_outlives_its_lease(opened):
    async with opened(fakes.Step("1")) as pool:
        async with pool.lease("a") as lease:
            kernel = await lease.kernel()
            await _run(kernel, "1")
        async with pool.lease("a") as lease:
            assert await lease.kernel() is kernel


async def test_a_kernel_lost_within_a_lease_is_replaced_and_announced(opened):
    async with opened(fakes.Step(CRASH, CRASHED), fakes.Step("1")) as pool, pool.lease("a") as held:
        first = await held.kernel()
        assert not first.loss_notice
        assert (await _run(first, CRASH)).kernel_lost
        assert (await _run(first, "1")).ending is values.Ending.REFUSED
        second = await held.kernel()
        assert second is not first
        assert second.loss_notice.startswith("A new Python was started")
        assert (await _run(second, "1")).ending is values.Ending.OK
        assert await held.kernel() is second


async def test_a_refusal_comes_from_asking_and_asking_again_may_succeed(opened, monkeypatch):
    async def refuse(*_, **__):
        raise errors.KernelStartError

    async with opened() as pool:
        if isinstance(pool, fakes.Pool):
            pool.refusals.append(errors.KernelStartError())
        else:
            monkeypatch.setattr(launchers, "launch", refuse)
        async with pool.lease("a") as lease:
            with pytest.raises(errors.KernelStartError):
                await lease.kernel()
            monkeypatch.undo()
            assert (await lease.kernel()).is_alive
