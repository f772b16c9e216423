"""A bot for `bench.chaos`: `python -m bench.chaos_bots` runs code from standard input.

Its settings come from the environment. A request is a line of JSON with `session`, `id` and `code`.
An answer is a line with `id`, the printed `lines`, `notices` of losses and refusals, and `status`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from typing import Any

from interpreter_bot import settings, values
from interpreter_bot.app import execution_startup, service_startup
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.store import active_bot
from tests.fakes import replies


async def _serve() -> None:
    config = settings.load(None)
    async with (
        execution_startup.hold_active_bot(config, lambda: None) as bot,
        execution_startup.open_hosts(config, kernels_outlive_bot=True) as hosts,
        service_startup.open_conversations(
            config, {}, secrets={}, hosts=asyncio.sleep(0, hosts), bot=bot
        ) as service,
    ):
        loss_watch = asyncio.create_task(_end_when_lost(bot))
        # Turns of a bot that was killed go on here, so this bot also answers their requests.
        service.notify_through("chaos", _notify, go_on=functools.partial(_handle, service))
        _print_message({"ready": os.getpid()})
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        tasks = set()
        while line := await reader.readline():
            task = asyncio.create_task(_answer(service, json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        loss_watch.cancel()


async def _end_when_lost(bot: active_bot.ActiveBot) -> None:
    await bot.lost.wait()
    # The bot also ends at once here; `bench.chaos` restarts it.
    os._exit(1)


async def _answer(service: session_service.SessionService, message: dict[str, Any]) -> None:
    key = values.SessionKey("chaos", thread=message["session"])
    person = requests.Person(message["session"], "somebody")
    request = requests.Request(
        key=key, person=person, text=message["code"], is_code=True, id=message["id"]
    )
    await _handle(service, request)


async def _handle(service: session_service.SessionService, request: requests.Request) -> None:
    reply = replies.Reply()
    end = await service.handle(request, reply)
    outputs = reply.contents("output")
    lines = "".join(
        output.plain for output in outputs if isinstance(output, values.Text)
    ).splitlines()
    notices = [output.plain for output in outputs if not isinstance(output, values.Text)]
    notices += reply.contents("announcement")
    notices += [finished.reason for finished in reply.contents("finished") if finished.reason]
    notices += [end.sentence] if end.sentence else []
    _print_message(
        {"id": request.id, "lines": lines, "notices": notices, "status": end.status.value}
    )


async def _notify(_: values.SessionKey, text: str) -> None:
    sys.stderr.write(f"notified: {text}\n")


def _print_message(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve())
