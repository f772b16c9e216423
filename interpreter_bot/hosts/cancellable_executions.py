"""Executions that are stopped when their caller is cancelled, before the caller goes on."""

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
    """Run code; when cancelled, stop it and return only once it has ended.

    Afterwards the host forgets the execution. Parameters are those of `ports.Kernel.execute`; by
    `execution_id`, others can stop the code. `on_installation` receives each installed layer.
    """
    execution_id = execution_id or new_id()

    def forward_event(event: ports.Event, _: int) -> None:
        if not isinstance(event, code_activity.InstalledLayer):
            show(event)
        elif on_installation is not None:
            on_installation(event)

    executing = kernel.execute(
        code,
        execution_id=execution_id,
        show=forward_event,
        ask=ask,
        seconds=seconds,
        is_bot_code=is_bot_code,
    )
    execution_task = asyncio.create_task(executing, name="execution")
    try:
        return (await asyncio.shield(execution_task)).finished
    except asyncio.CancelledError:
        await stop_and_wait(hosts, execution_task, execution_id)
        raise
    finally:
        hosts.acknowledge(execution_id)


async def stop_and_wait(
    hosts: ports.Hosts, execution_task: asyncio.Task[ports.ExecutionEnd], execution_id: str
) -> ports.ExecutionEnd:
    """Stop an execution and wait for its end, despite cancellation.

    The host kills code that does not end by itself in time.
    """
    stop_task = asyncio.create_task(hosts.stop(execution_id), name="stop of an execution")
    for task in (stop_task, execution_task):
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    if (error := stop_task.exception()) is not None and not isinstance(error, errors.BotError):
        raise error
    return execution_task.result()
