"""Executions that are stopped, and end, before their caller's cancellation goes on."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable

from interpreter_bot import code_activity, errors, values
from interpreter_bot.hosts import ports


def new_id() -> str:
    """Return an id for an execution that is to come."""
    return uuid.uuid4().hex


async def run(
    hosts: ports.Hosts,
    kernel: ports.Kernel,
    code: str,
    *,
    show: Callable[[values.Output], None],
    ask: ports.Ask | None = None,
    seconds: float | None = None,
    is_own: bool = False,
    execution_id: str = "",
    on_installation: Callable[[code_activity.InstalledLayer], None] | None = None,
) -> values.Finished:
    """Run code; when cancelled, stop it and return only when it no longer runs. Nothing is kept.

    Args:
        hosts: where the kernel is.
        kernel: runs it.
        code: see `ports.Kernel.execute`, as for all others.
        show: gets each output as it appears.
        ask: answers the code's questions.
        seconds: wall time.
        is_own: it changes no variable.
        execution_id: by which others may stop it.
        on_installation: gets what it installs.
    """
    execution_id = execution_id or new_id()

    def hear(event: ports.Event, _: int) -> None:
        if not isinstance(event, code_activity.InstalledLayer):
            show(event)
        elif on_installation is not None:
            on_installation(event)

    executing = kernel.execute(
        code,
        execution_id=execution_id,
        show=hear,
        ask=ask,
        seconds=seconds,
        is_own=is_own,
    )
    running = asyncio.create_task(executing, name="execution")
    try:
        return (await asyncio.shield(running)).finished
    except asyncio.CancelledError:
        await stopped(hosts, running, execution_id)
        raise
    finally:
        hosts.acknowledge(execution_id)


async def stopped(
    hosts: ports.Hosts, running: asyncio.Task[ports.ExecutionEnd], execution_id: str
) -> ports.ExecutionEnd:
    """Stop an execution and wait for its end, despite cancellation.

    A host ends in time what does not end by itself.
    """
    stopping = asyncio.create_task(hosts.stop(execution_id), name="stop of an execution")
    for task in (stopping, running):
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    if (error := stopping.exception()) is not None and not isinstance(error, errors.BotError):
        raise error
    return running.result()
