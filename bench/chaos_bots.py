"""A bot for the chaos: `python -m bench.chaos_bots` takes code on standard input, tells its end.

Its settings come from the environment. A line of JSON asks: `session`, `id` and `code`; a line
answers: `id`, `lines` that were printed, `said` of losses and refusals, and `status`.
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
        ending = asyncio.create_task(_end_when_lost(bot))
        # What another bot began, which was killed, goes on here: its answer comes from this one.
        service.notify_through("chaos", _notify, go_on=functools.partial(_go_on, service))
        _tell({"ready": os.getpid()})
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        tasks = set()
        while line := await reader.readline():
            task = asyncio.create_task(_answer(service, json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        ending.cancel()


async def _end_when_lost(bot: active_bot.ActiveBot) -> None:
    await bot.lost.wait()
    # As a bot does; it is started again.
    os._exit(1)


async def _answer(service: session_service.SessionService, asked: dict[str, Any]) -> None:
    key = values.SessionKey("chaos", thread=asked["session"])
    person = requests.Person(asked["session"], "somebody")
    request = requests.Request(
        key=key, person=person, text=asked["code"], is_code=True, id=asked["id"]
    )
    await _handle(service, request)


async def _go_on(service: session_service.SessionService, request: requests.Request) -> None:
    await _handle(service, request)


async def _handle(service: session_service.SessionService, request: requests.Request) -> None:
    reply = replies.Reply()
    end = await service.handle(request, reply)
    outputs = reply.contents("output")
    lines = "".join(one.plain for one in outputs if isinstance(one, values.Text)).splitlines()
    said = [one.plain for one in outputs if not isinstance(one, values.Text)]
    said += reply.contents("announcement")
    said += [finished.reason for finished in reply.contents("finished") if finished.reason]
    said += [end.sentence] if end.sentence else []
    _tell({"id": request.id, "lines": lines, "said": said, "status": end.status.value})


async def _notify(_: values.SessionKey, text: str) -> None:
    sys.stderr.write(f"notified: {text}\n")


def _tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve())
