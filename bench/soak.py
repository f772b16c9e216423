"""A long run with the page, Slack and Discord: lost answers, and growth of memory.

A few conversations on each platform run code in turn. Each counts in a variable, also across
kernels that are ended when idle and started again; some turns add a plot, a table, a file or an
error. Run it as `python -m bench.soak SECONDS`.
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
_EXTRA_CODES = (
    "",
    "import matplotlib.pyplot as plt; plt.plot(range(n)); plt.show()",
    "import pandas; pandas.DataFrame({'a': range(200)})",
    "open('numbers.csv', 'a').write(f'{n}\\n'); None",
    "1 / 0",
)
_BOT_SCRIPT = """
import sys, yarl, discord
from interpreter_bot import cli
origin = sys.argv[1]
discord.http.Route.BASE = origin + "/api/v10"
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(origin.replace("http", "ws") + "/gw")
sys.argv = ["interpreter-bot", "run"]
sys.exit(cli.main())
"""

_Ask = Callable[[str], Awaitable[Callable[[], str]]]
"""Sends code; returns a function that reads the answer shown so far."""


class _Conversation:
    """A conversation whose code counts its turns."""

    def __init__(self, name: str, ask: _Ask) -> None:
        self.name, self._ask, self._count = name, ask, 0
        self.problems: list[str] = []

    async def run_turn(self, extra: str) -> float:
        """Run code; return the seconds until its output was shown."""
        self._count += 1
        start_time = time.monotonic()
        expected = f"n is {self._count} in {self.name}"
        read = await self._ask(_CODE.format(name=self.name, extra=extra))
        while expected not in read():
            if time.monotonic() - start_time > _ANSWER_SECONDS:
                self.problems.append(f"{expected}: {read()[-300:]!r}")
                break
            await asyncio.sleep(0.1)
        return time.monotonic() - start_time


def _make_slack_ask(slack: slack_servers.Server, number: int) -> _Ask:
    root = ""

    async def ask(code: str) -> Callable[[], str]:
        nonlocal root
        text = f"<@UBOT> py {code}"
        ts = slack.say(f"U{number % 3 + 1}", "C1", text, **({"thread": root} if root else {}))
        root = root or ts
        return lambda: html.unescape(
            json.dumps([message.get("blocks") for message in slack.replies("C1", root)])
        )

    return ask


def _make_discord_ask(server: discord_servers.Server, number: int, guild: Any) -> _Ask:
    person, channel = guild.person(f"person{number}"), guild.channel(f"channel{number}")

    async def ask(code: str) -> Callable[[], str]:
        await server.command(person, channel, "py", {"code": code})
        return lambda: "\n".join(message.content for message in channel.bot_messages[-4:])

    return ask


def _make_page_ask(visitor: page_visitors.Visitor, number: int) -> _Ask:
    requests = 0

    async def ask(code: str) -> Callable[[], str]:
        nonlocal requests
        requests += 1
        name = f"request-of-soak-{number}-{requests}"
        await visitor.send_message(name, code, is_code=True)
        return lambda: "\n".join(page_visitors.list_printed_lines(visitor.shown.get(name, [])))

    return ask


async def run_for(seconds: float) -> dict[str, Any]:
    """Run all conversations; return problems, answer times, memory samples and the log."""
    model = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
    async with contextlib.AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp"))
        slack = await stack.enter_async_context(slack_servers.Server(speed=5))
        discord = await stack.enter_async_context(discord_servers.Server(window_seconds=0.5))
        bot = bot_processes.BotProcess(
            pathlib.Path(directory),
            model,
            "none",
            program=(sys.executable, "-c", _BOT_SCRIPT, discord.origin),
        )
        bot.environment |= {
            "INTERPRETER_BOT_SLACK__BOT_TOKEN": slack.world.teams["T1"].token,
            "INTERPRETER_BOT_SLACK__APP_TOKEN": str(slack.app_token),
            "INTERPRETER_BOT_SLACK__API_BASE_URL": slack.base_url,
            "INTERPRETER_BOT_DISCORD__TOKEN": discord.token,
            "INTERPRETER_BOT_KERNELS__IDLE_SECONDS": str(_IDLE_SECONDS),
        }
        visitors = [
            page_visitors.Visitor(f"session-of-soak-{number}", None)
            for number in range(_CONVERSATIONS)
        ]

        def set_address(address: str) -> None:
            for visitor in visitors:
                visitor.address = address

        await stack.enter_async_context(bot.running(set_address))
        await slack.until(lambda: slack.is_connected)
        guild = discord.guild("Lab")
        for visitor in visitors:
            await stack.enter_async_context(visitor)
        conversations = []
        for number, visitor in enumerate(visitors):
            asks = (
                _make_slack_ask(slack, number),
                _make_discord_ask(discord, number, guild),
                _make_page_ask(visitor, number),
            )
            for platform, ask in zip(("slack", "discord", "page"), asks, strict=True):
                conversations.append(_Conversation(f"{platform}{number}", ask))
        await asyncio.sleep(_PAUSE_SECONDS)
        samples: list[dict[str, float]] = []
        answers: dict[str, list[float]] = collections.defaultdict(list)
        start_time = last_sample = time.monotonic()
        turn = 0
        while time.monotonic() - start_time < seconds:
            conversation = conversations[turn % len(conversations)]
            extra = _EXTRA_CODES[turn // len(conversations) % len(_EXTRA_CODES)]
            answers[conversation.name.rstrip("0123456789")].append(
                await conversation.run_turn(extra)
            )
            turn += 1
            if time.monotonic() - last_sample > _SAMPLE_SECONDS:
                last_sample = time.monotonic()
                host = await bot.host_pid()
                sizes = {
                    "bot": memory.read_memory_bytes(bot.pid)[1],
                    "host": memory.read_memory_bytes(host)[1],
                }
                samples.append({name: size / 1e6 for name, size in sizes.items()})
                print(f"{last_sample - start_time:.0f} s, {turn} turns: {samples[-1]}", flush=True)
            await asyncio.sleep(_PAUSE_SECONDS)
        log = bot.log.read_text()
    problems = [problem for conversation in conversations for problem in conversation.problems]
    return {"problems": problems, "answers": answers, "megabytes": samples, "log": log}


def _report(result: dict[str, Any]) -> None:
    for name, seconds in result["answers"].items():
        median, p95 = (metrics.percentile(seconds, share) for share in (0.5, 0.95))
        print(f"{name}: {len(seconds)} answers, median {median:.2f} s, p95 {p95:.2f} s")
    print(f"log: {len(result['log'].splitlines())} lines")
    print(f"problems: {len(result['problems'])}", *result["problems"][:10], sep="\n  ")
    samples = result["megabytes"]
    if not samples:
        return
    quarter = max(len(samples) // 4, 1)
    for name in ("bot", "host"):
        early_size, late_size = (
            metrics.percentile([sample[name] for sample in period], 0.5)
            for period in (samples[quarter : 2 * quarter] or samples, samples[-quarter:])
        )
        sizes = f"{early_size:.1f} MB in the second quarter, {late_size:.1f} in the last"
        print(f"memory of the {name}: {sizes}")


if __name__ == "__main__":
    _report(asyncio.run(run_for(float(sys.argv[1]))))
