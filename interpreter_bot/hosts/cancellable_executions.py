"""Executions whose cancelled caller waits until the code is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable

from interpreter_bot import code_activity, errors, values
from interpreter_bot.hosts import ports


def new_id() -> str:
    """Return the id of a new execution."""
    return uuid.uuid4().hex


async def run(
    hosts: ports.Hosts,
    kernel: ports.Kernel,
    code: str,
    *,
    show: Callable[[values.Output], None],
    ask: ports.Ask | None = None,
    seconds: float | None = None,
    is_bot_code: bool = False,
    execution_id: str = "",
    on_installation: Callable[[code_activity.InstalledLayer], None] | None = None,
) -> values.Finished:
    """Run code; when cancelled, stop it and return only when it no longer runs.

    Afterwards the host forgets the execution. Parameters are those of `ports.Kernel.execute`; with
    `execution_id`, others can stop the code. `on_installation` receives each installed layer.
    """
    execution_id = execution_id or new_id()

    def pass_on(event: ports.Event, _: int) -> None:
        if not isinstance(event, code_activity.InstalledLayer):
            show(event)
        elif on_installation is not None:
            on_installation(event)

    executing = kernel.execute(
        code,
        execution_id=execution_id,
        show=pass_on,
        ask=ask,
        seconds=seconds,
        is_bot_code=is_bot_code,
    )
    running = asyncio.create_task(executing, name="execution")
    try:
        return (await asyncio.shield(running)).finished
    except asyncio.CancelledError:
        await stop_and_wait(hosts, running, execution_id)
        raise
    finally:
        hosts.acknowledge(execution_id)


async def stop_and_wait(
    hosts: ports.Hosts, running: asyncio.Task[ports.ExecutionEnd], execution_id: str
) -> ports.ExecutionEnd:
    """Stop an execution and wait for its end, despite cancellation.

    The host kills code that does not end by itself in time.
    """
    stopping = asyncio.create_task(hosts.stop(execution_id), name="stop of an execution")
    for task in (stopping, running):
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    if (error := stopping.exception()) is not None and not isinstance(error, errors.BotError):
        raise error
    return running.result()
