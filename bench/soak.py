"""An hour with the page, Slack and Discord open: what is lost, and what memory grows.

Three people on each platform, each in a few conversations, run code in turns. Each conversation
counts in a variable, across kernels that are let go and started again; a plot, an error and a file
come now and then. Run it as `python -m bench.soak SECONDS`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import html
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench import bot_processes, memory, metrics, page_visitors
from interpreter_bot import settings
from tests.fakes.discord_server import servers as discord_servers
from tests.fakes.slack_server import servers as slack_servers

_PAUSE_SECONDS = 4.0
_SAMPLE_SECONDS = 30.0
_ANSWER_SECONDS = 90.0
_CONVERSATIONS = 4
_IDLE_SECONDS = 60
_CODE = "n = globals().get('n', 0) + 1; print(f'n is {{n}} in {name}'); {extra}"
_EXTRAS = (
    "",
    "import matplotlib.pyplot as plt; plt.plot(range(n)); plt.show()",
    "import pandas; pandas.DataFrame({'a': range(200)})",
    "open('numbers.csv', 'a').write(f'{n}\\n'); None",
    "1 / 0",
)
_BOT = """
import sys, yarl, discord
from interpreter_bot import cli
origin = sys.argv[1]
discord.http.Route.BASE = origin + "/api/v10"
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(origin.replace("http", "ws") + "/gw")
sys.argv = ["interpreter-bot", "run"]
sys.exit(cli.main())
"""

_Ask = Callable[[str], Awaitable[Callable[[], str]]]
"""Sends code; gives what reads the answer that is shown so far."""


class _Conversation:
    """A conversation whose code counts."""

    def __init__(self, name: str, ask: _Ask) -> None:
        self.name, self._ask, self._count = name, ask, 0
        self.problems: list[str] = []

    async def go_on(self, extra: str) -> float:
        """Run code once more; return the seconds until its output was shown."""
        self._count += 1
        began = time.monotonic()
        expected = f"n is {self._count} in {self.name}"
        read = await self._ask(_CODE.format(name=self.name, extra=extra))
        while expected not in read():
            if time.monotonic() - began > _ANSWER_SECONDS:
                self.problems.append(f"{expected}: {read()[-300:]!r}")
                break
            await asyncio.sleep(0.1)
        return time.monotonic() - began


def _on_slack(slack: slack_servers.Server, number: int) -> _Ask:
    root = ""

    async def ask(code: str) -> Callable[[], str]:
        nonlocal root
        text = f"<@UBOT> py {code}"
        said = slack.say(f"U{number % 3 + 1}", "C1", text, **({"thread": root} if root else {}))
        root = root or said
        return lambda: html.unescape(
            json.dumps([message.get("blocks") for message in slack.replies("C1", root)])
        )

    return ask


def _on_discord(server: discord_servers.Server, number: int, lab: Any) -> _Ask:
    person, channel = lab.person(f"person{number}"), lab.channel(f"channel{number}")

    async def ask(code: str) -> Callable[[], str]:
        await server.command(person, channel, "py", {"code": code})
        return lambda: "\n".join(message.content for message in channel.bot_messages[-4:])

    return ask


def _on_page(visitor: page_visitors.Visitor, number: int) -> _Ask:
    requests = 0

    async def ask(code: str) -> Callable[[], str]:
        nonlocal requests
        requests += 1
        name = f"request-of-soak-{number}-{requests}"
        await visitor.say(name, code, is_code=True)
        return lambda: "\n".join(page_visitors.printed(visitor.shown.get(name, [])))

    return ask


async def run_for(seconds: float) -> dict[str, Any]:
    """Run it; return problems, seconds of answers and megabytes at each sample."""
    model = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
    async with contextlib.AsyncExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp"))
        slack = await stack.enter_async_context(slack_servers.Server(speed=5))
        server = await stack.enter_async_context(discord_servers.Server(window_seconds=0.5))
        bot = bot_processes.BotProcess(
            pathlib.Path(place), model, "none", program=(sys.executable, "-c", _BOT, server.origin)
        )
        bot.environment |= {
            "INTERPRETER_BOT_SLACK__BOT_TOKEN": slack.world.teams["T1"].token,
            "INTERPRETER_BOT_SLACK__APP_TOKEN": str(slack.app_token),
            "INTERPRETER_BOT_SLACK__API_BASE_URL": slack.base_url,
            "INTERPRETER_BOT_DISCORD__TOKEN": server.token,
            "INTERPRETER_BOT_KERNELS__IDLE_SECONDS": str(_IDLE_SECONDS),
        }
        visitors = [
            page_visitors.Visitor(f"session-of-soak-{number}", None)
            for number in range(_CONVERSATIONS)
        ]

        def tell(address: str) -> None:
            for visitor in visitors:
                visitor.address = address

        await stack.enter_async_context(bot.running(tell))
        await slack.until(lambda: slack.is_connected)
        lab = server.guild("Lab")
        for visitor in visitors:
            await stack.enter_async_context(visitor)
        conversations = []
        for number, visitor in enumerate(visitors):
            asks = (
                _on_slack(slack, number),
                _on_discord(server, number, lab),
                _on_page(visitor, number),
            )
            for platform, ask in zip(("slack", "discord", "page"), asks, strict=True):
                conversations.append(_Conversation(f"{platform}{number}", ask))
        await asyncio.sleep(_PAUSE_SECONDS)
        samples: list[dict[str, float]] = []
        answers: dict[str, list[float]] = collections.defaultdict(list)
        began = last_sample = time.monotonic()
        turn = 0
        while time.monotonic() - began < seconds:
            conversation = conversations[turn % len(conversations)]
            extra = _EXTRAS[turn // len(conversations) % len(_EXTRAS)]
            answers[conversation.name.rstrip("0123456789")].append(await conversation.go_on(extra))
            turn += 1
            if time.monotonic() - last_sample > _SAMPLE_SECONDS:
                last_sample = time.monotonic()
                host = await bot.host_pid()
                sizes = {"bot": memory.held_bytes(bot.pid)[1], "host": memory.held_bytes(host)[1]}
                samples.append({name: size / 1e6 for name, size in sizes.items()})
                print(f"{last_sample - began:.0f} s, {turn} turns: {samples[-1]}", flush=True)
            await asyncio.sleep(_PAUSE_SECONDS)
        log = bot.log.read_text()
    problems = [problem for each in conversations for problem in each.problems]
    return {"problems": problems, "answers": answers, "megabytes": samples, "log": log}


def _report(result: dict[str, Any]) -> None:
    for name, seconds in result["answers"].items():
        middle, high = (metrics.percentile(seconds, share) for share in (0.5, 0.95))
        print(f"{name}: {len(seconds)} answers, median {middle:.2f} s, p95 {high:.2f} s")
    print(f"log: {len(result['log'].splitlines())} lines")
    print(f"problems: {len(result['problems'])}", *result["problems"][:10], sep="\n  ")
    samples = result["megabytes"]
    if not samples:
        return
    quarter = max(len(samples) // 4, 1)
    for name in ("bot", "host"):
        early, late = (
            metrics.percentile([sample[name] for sample in part], 0.5)
            for part in (samples[quarter : 2 * quarter] or samples, samples[-quarter:])
        )
        print(f"memory of the {name}: {early:.1f} MB in the second quarter, {late:.1f} in the last")


if __name__ == "__main__":
    _report(asyncio.run(run_for(float(sys.argv[1]))))
