"""What a provisioner promises, and that each check finds one that breaks it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import types
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import live_kernels, pools
from tests import machine, waiting

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]

MIB = settings.MIB
SPIN = "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[pools.Pool]:
    kernels = settings.Kernels(preload=(), spares=0, freeze_seconds=0)
    with machine.short_directory() as place:
        paths = settings.Paths(data=place / "d", runtime=place / "r")
        limits = settings.Limits(execution_seconds=10)
        async with pools.Pool.open(
            settings.Settings(kernels=kernels, paths=paths, limits=limits), grace_seconds=1
        ) as opened:
            yield opened


async def run(
    kernel: live_kernels.Kernel, code: str, **options: float
) -> tuple[str, values.Ending]:
    shown: list[values.Output] = []
    finished = await kernel.execute(code, show=shown.append, **options)
    return "".join(one.plain for one in shown).strip(), finished.ending


# How long a check waits for what is promised.
PATIENCE = {"seconds": 30.0}


async def attaches_a_workspace_that_both_sides_can_write(pool, kernel, files):
    async def chunks():
        yield b"from outside"

    await files.put("a.txt", chunks())
    said, _ = await run(kernel, "open('b.txt', 'w').write('x'); print(open('a.txt').read())")
    assert said.startswith("from outside")
    assert [info.name for info in await files.list()] == ["a.txt", "b.txt"]
    said, _ = await run(kernel, "import os; os.chmod('b.txt', 0o600); os.unlink('a.txt')")
    assert [info.name for info in await files.list()] == ["b.txt"], said


async def connects_as_often_as_it_is_asked(pool, kernel, files):
    with contextlib.ExitStack() as opened:
        every = []
        for _ in range(5):
            one = opened.enter_context(await kernel.provisioner.connect("shell"))
            every.append(one.fileno())
            assert one.gettimeout() == 0, "it must not block"
            assert one.getpeername() is not None
        assert len(set(every)) == len(every)


async def signals_the_kernel_alone(pool, kernel, files):
    code = "import time\nopen('begun', 'x').close()\ntime.sleep(9)"
    running = asyncio.create_task(run(kernel, code))
    while not await files.list():  # noqa: ASYNC110 - it is looked up.
        await asyncio.sleep(0.05)
    kernel.provisioner.interrupt()
    async with asyncio.timeout(PATIENCE["seconds"]):
        said, ending = await running
    assert ending is values.Ending.ERROR
    assert "KeyboardInterrupt" in said
    assert (await run(kernel, "1 + 1"))[0] == "2"


async def counts_what_a_session_uses(pool, kernel, files):
    usage = kernel.provisioner.meter()

    def memory_bytes() -> int:
        counted = usage.counted_bytes()
        return usage.memory_bytes() if counted is None else counted

    async def rest() -> None:
        seen = await asyncio.to_thread(usage.clocks)
        await asyncio.sleep(0.1)
        while usage.has_run_since(seen):
            seen = await asyncio.to_thread(usage.clocks)
            await asyncio.sleep(0.1)

    async with asyncio.timeout(PATIENCE["seconds"]):
        await rest()
    before = memory_bytes(), usage.cpu_seconds(), usage.written_bytes()
    clocks = await asyncio.to_thread(usage.clocks)
    assert usage.oom_kills() == 0
    await run(
        kernel,
        "import time\nx = bytearray(b'x' * (50 << 20)); open('c', 'wb').write(x)\n"
        "end = time.process_time() + 0.4\nwhile time.process_time() < end: pass",
    )
    assert usage.has_run_since(clocks)
    assert memory_bytes() >= before[0] + 45 * MIB
    assert usage.cpu_seconds() >= before[1] + 0.3
    assert usage.written_bytes() >= before[2] + 45 * MIB
    assert usage.stored_bytes() >= 0


async def freezes_all_of_a_session_and_thaws_it(pool, kernel, files):
    if not kernel.provisioner.can_freeze:
        pytest.skip("nothing can be frozen here")
    usage = kernel.provisioner.meter()
    if not kernel.provisioner.can_freeze:
        pytest.skip("nothing is frozen without control groups")
    await run(kernel, SPIN)
    await kernel.provisioner.freeze()
    await asyncio.sleep(0.2)
    clocks = await asyncio.to_thread(usage.clocks)
    await asyncio.sleep(0.2)
    assert not usage.has_run_since(clocks), "something runs in a frozen session"
    await kernel.provisioner.thaw()
    await waiting.until(lambda: usage.has_run_since(clocks), seconds=PATIENCE["seconds"])
    await kernel.provisioner.thaw()
    assert (await run(kernel, "1 + 1"))[0] == "2"


async def kills_what_is_frozen_and_says_that_it_ended(pool, kernel, files):
    provisioner = kernel.provisioner
    await provisioner.freeze()
    await provisioner.kill()
    async with asyncio.timeout(PATIENCE["seconds"]):
        await provisioner.ended.wait()
    await provisioner.wait_status()
    provisioner.interrupt()
    await waiting.until(lambda: not provisioner.meter().clocks(), seconds=PATIENCE["seconds"])
    with contextlib.suppress(OSError):
        (await provisioner.connect("shell")).close()
        pytest.fail("it connects to a kernel that is gone")


CHECKS = {
    check.__name__: check
    for check in (
        attaches_a_workspace_that_both_sides_can_write,
        connects_as_often_as_it_is_asked,
        signals_the_kernel_alone,
        counts_what_a_session_uses,
        freezes_all_of_a_session_and_thaws_it,
        kills_what_is_frozen_and_says_that_it_ended,
    )
}


async def nothing(*_: object) -> None:
    """Promise, and do nothing."""


async def elsewhere(_: str) -> socket.socket:
    """Connect nowhere, with a socket that blocks."""
    return socket.socket(socket.AF_UNIX)


def idle() -> types.SimpleNamespace:
    """Count a session as if nothing ever happened in it."""
    return types.SimpleNamespace(
        counted_bytes=lambda: 0,
        cpu_seconds=lambda: 0.0,
        oom_kills=lambda: 0,
        clocks=lambda: {1: 1},
        has_run_since=lambda _: False,
        written_bytes=lambda: 0,
    )


BROKEN = {
    "attaches_a_workspace_that_both_sides_can_write": ("attach", nothing),
    "connects_as_often_as_it_is_asked": ("connect", elsewhere),
    "signals_the_kernel_alone": ("interrupt", lambda: None),
    "counts_what_a_session_uses": ("meter", idle),
    "freezes_all_of_a_session_and_thaws_it": ("freeze", nothing),
    "kills_what_is_frozen_and_says_that_it_ended": ("kill", nothing),
}
"""By check: what a provisioner does wrong that the check has to find."""


@pytest.mark.parametrize("check", CHECKS)
async def test_ours_keeps_what_is_promised(pool, check):
    kernel = await pool.take(check)
    await CHECKS[check](pool, kernel, await pool.workspace(check))
    await pool.forget(check)


@pytest.mark.first_case
@pytest.mark.parametrize("check", BROKEN)
async def test_a_broken_one_is_found_out(pool, check, monkeypatch):
    name, wrong = BROKEN[check]
    key = f"{check} broken"
    if name == "attach":
        kind = type((await pool.take("any")).provisioner)
        monkeypatch.setattr(kind, name, nothing)
    # Here nothing comes.
    monkeypatch.setitem(PATIENCE, "seconds", 3.0)

    async def check_broken():
        kernel = await pool.take(key)
        if name != "attach":
            monkeypatch.setattr(kernel.provisioner, name, wrong)
        await CHECKS[check](pool, kernel, await pool.workspace(key))

    missing = (AssertionError, TimeoutError, errors.KernelStartError, pytest.fail.Exception)
    with pytest.raises(missing):
        await check_broken()
    monkeypatch.undo()
    await pool.forget(key)
