"""Two bots (one stands by), two hosts, PostgreSQL, a bucket: any process is killed or stopped.

Each session counts: a turn adds a number to a variable and to a file, and prints both. Who checks
knows which numbers were acknowledged, and when. Later none may be there twice or in another order,
none of another session, and none may be missing without a sentence that says so; none at all that
was acknowledged some time before the machine of its session was lost.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from bench import metrics, sample_sizes
from interpreter_bot import settings
from interpreter_bot.hosts import certificate_authorities, messages
from tests.fakes import buckets
from tests.integration.store import servers

_SESSIONS = 6
_LOST_SECONDS = 3.0
_TURN_SECONDS = 60.0
# Until what a turn did is saved and archived: a pause of a second, and what a busy machine takes.
_ARCHIVED_SECONDS = 15.0
_CODE = """
numbers = globals().get('numbers', []) + ['{number}']
with open('numbers.txt', 'a') as file: _ = file.write('{number}\\n')
print('variable', *numbers)
print('file', *open('numbers.txt').read().split())
"""


@dataclasses.dataclass(slots=True)
class _Session:
    """What is known of a session: its numbers that were tried, and when each was acknowledged."""

    name: str
    tried: list[str] = dataclasses.field(default_factory=list)
    acknowledged: dict[str, float] = dataclasses.field(default_factory=dict)
    # That were missed once, with a sentence: they may not come back, and are not missed again.
    given_up: dict[str, set[str]] = dataclasses.field(
        default_factory=lambda: {"variable": set(), "file": set()}
    )


class _Process:
    """A process of the fleet, which is started again whenever it is killed."""

    def __init__(
        self,
        name: str,
        module: tuple[str, ...],
        config: settings.Settings,
        login: dict[str, str],
    ) -> None:
        self.name = name
        self._module = module
        self._environment = dict(os.environ) | config.for_host() | login
        if config.store.url:
            self._environment["INTERPRETER_BOT_STORE__URL"] = config.store.url
        self._environment["INTERPRETER_BOT_SNAPSHOTS__ENABLED"] = "true"
        self.process: asyncio.subprocess.Process | None = None
        self.answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.on_late: Callable[[dict[str, Any]], None] = lambda _: None
        self.is_ready = asyncio.Event()
        self._log = config.paths.data.parent / f"{name}.log"

    async def run(self) -> None:
        """Keep it, for ever."""
        while True:
            with self._log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", *self._module),
                    env=self._environment,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                )
            assert self.process.stdout is not None
            try:
                async for line in self.process.stdout:
                    said = json.loads(line)
                    # Of a bot, or of a host.
                    if "ready" in said or said.get("type") == messages.HostReady.__name__:
                        self.is_ready.set()
                    elif said["id"] in self.answers:
                        self.answers.pop(said["id"]).set_result(said)
                    else:
                        # Of a turn that goes on after its bot was killed, or of one too slow.
                        self.on_late(said)
                await self.process.wait()
            finally:
                self.is_ready.clear()
                for waiting in self.answers.values():
                    waiting.cancel()
                self.answers.clear()
                if self.process.returncode is None:
                    self.process.kill()
                    # Reads its pipes to their ends, too, which closes them.
                    await self.process.communicate()

    def signal(self, signum: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                self.process.send_signal(signum)

    async def ask(self, session: str, number: str) -> dict[str, Any] | None:
        """Let a bot run the code of a number; None where its answer never came."""
        await self.is_ready.wait()
        assert self.process is not None
        assert self.process.stdin is not None
        waiting = self.answers[number] = asyncio.get_running_loop().create_future()
        code = _CODE.format(number=number)
        asked = json.dumps({"session": session, "id": number, "code": code})
        try:
            self.process.stdin.write(f"{asked}\n".encode())
            async with asyncio.timeout(_TURN_SECONDS):
                return await waiting
        except (TimeoutError, ConnectionError):
            return None
        except asyncio.CancelledError:
            if waiting.cancelled():
                return None
            raise
        finally:
            self.answers.pop(number, None)


class Chaos:
    """All processes, those who talk to them, and who kills them. Use `run`."""

    def __init__(
        self, seed: int, place: pathlib.Path, database: str, login: dict[str, str]
    ) -> None:
        self._chance = random.Random(seed)
        self._sessions = [_Session(f"s{number}") for number in range(_SESSIONS)]
        self.wrong: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        # When a machine was lost last, as far as sessions could have been on it.
        self._lost_at = 0.0
        authority = certificate_authorities.CertificateAuthority(place / "ca")
        of_host = authority.issue(["127.0.0.1"], is_bot=False, days=1)
        of_bot = authority.issue(["bot"], is_bot=True, days=1)
        self.hosts, self.bots, addresses = [], [], []
        for name in ("host-a", "host-b"):
            addresses.append(address := f"127.0.0.1:{_unused_port()}")
            config = settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0),
                paths=settings.Paths(data=place / name / "d", runtime=place / name / "r"),
                host=settings.Host(listen=address, tls=of_host, store="s3://reports/chaos"),
            )
            config.paths.data.mkdir(parents=True)
            self.hosts.append(_Process(name, ("interpreter_bot", "host"), config, login))
        for name in ("bot-a", "bot-b"):
            config = settings.Settings(
                paths=settings.Paths(data=place / name / "d", runtime=place / name / "r"),
                store=settings.Store(url=database),
                host=settings.Host(fleet=tuple(addresses), tls=of_bot, lost_seconds=_LOST_SECONDS),
            )
            config.paths.data.mkdir(parents=True)
            self.bots.append(_Process(name, ("bench.chaos_bots",), config, {}))

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, seed: int) -> AsyncIterator[Chaos]:
        """Start all processes, and leave nothing of them."""
        with (
            tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as place,
            servers.Server.run() as server,
            server.database() as address,
            buckets.serving("s3", {}) as bucket,
        ):
            chaos = cls(seed, pathlib.Path(place), address, buckets.s3_login(bucket))
            for bot in chaos.bots:
                bot.on_late = chaos._late
            tasks = []
            try:
                for processes in (chaos.hosts, chaos.bots):
                    tasks += [asyncio.create_task(one.run()) for one in processes]
                    async with asyncio.timeout(60):
                        if processes is chaos.hosts:
                            await asyncio.gather(*(one.is_ready.wait() for one in processes))
                        else:
                            await chaos._active_bot()
                yield chaos
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def run(self, seconds: float) -> None:
        """Talk and kill for so long, then look at what is left of all sessions."""
        end = time.monotonic() + seconds
        killing = asyncio.create_task(self._kill(end))
        await asyncio.gather(*(self._talk(one, end) for one in self._sessions))
        await killing
        for session in self._sessions:
            for _ in range(3):
                if await self._turn(session):
                    break
            else:
                self.wrong.append(f"{session.name} never answers again")

    async def crowd(self, count: int) -> list[list[float]]:
        """Let so many sessions take a turn at once, and another one; return their seconds."""
        sessions = [_Session(f"crowd-{number}") for number in range(count)]

        async def timed(session: _Session) -> float:
            begun = time.monotonic()
            if not await self._turn(session):
                self.wrong.append(f"{session.name} has no answer")
            return time.monotonic() - begun

        return [await asyncio.gather(*map(timed, sessions)) for _ in range(2)]

    async def _talk(self, session: _Session, end: float) -> None:
        while time.monotonic() < end:
            await self._turn(session)
            await asyncio.sleep(self._chance.uniform(0, 1.5))

    async def _turn(self, session: _Session) -> bool:
        """Take a turn with the active bot; say whether it was acknowledged."""
        number = f"{session.name}.{len(session.tried)}"
        session.tried.append(number)
        bot = await self._active_bot()
        answer = await bot.ask(session.name, number)
        self.counts["turns"] += 1
        if answer is None:
            self.counts["turns without an answer"] += 1
            return False
        return self._take(session, answer)

    def _late(self, answer: dict[str, Any]) -> None:
        self.counts["turns with a late answer"] += 1
        self._take(next(one for one in self._sessions if answer["id"] in one.tried), answer)

    def _take(self, session: _Session, answer: dict[str, Any]) -> bool:
        """Take an answer; say whether it acknowledges its number."""
        number = answer["id"]
        if answer["status"] != "done":
            self.counts["turns that failed"] += 1
            return False
        told = {line.split()[0]: line.split()[1:] for line in answer["lines"] if line}
        if not {"variable", "file"} <= told.keys():
            # Its execution ended otherwise, which is to be said.
            if not answer["said"]:
                self.wrong.append(f"{number} says nothing, nor why: {answer}")
            self.counts["turns that failed"] += 1
            return False
        for kind in ("variable", "file"):
            self._check(session, kind, told[kind], answer)
        session.acknowledged[number] = time.monotonic()
        return True

    def _check(
        self, session: _Session, kind: str, found: list[str], answer: dict[str, Any]
    ) -> None:
        where = f"{answer['id']}, {kind}: {found}, said {answer['said']}"
        if len(set(found)) < len(found):
            self.wrong.append(f"twice in {where}")
        if found != [one for one in session.tried if one in set(found)]:
            self.wrong.append(f"crossed or disordered in {where}")
        # What a late answer does not know of may have come after it.
        earlier = session.tried[: session.tried.index(answer["id"])]
        missing = session.acknowledged.keys() & set(earlier) - set(found) - session.given_up[kind]
        if not missing:
            return
        session.given_up[kind] |= missing
        self.counts[f"numbers lost of a {kind}"] += len(missing)
        if not answer["said"]:
            self.wrong.append(f"lost without a sentence {sorted(missing)} in {where}")
        early = [
            one for one in missing if session.acknowledged[one] < self._lost_at - _ARCHIVED_SECONDS
        ]
        if early:
            self.wrong.append(f"lost though it was archived {sorted(early)} in {where}")

    async def _kill(self, end: float) -> None:
        """Kill and stop at random; never both hosts at once, and of the bots the active one."""
        while time.monotonic() < end:
            await asyncio.sleep(self._chance.uniform(2.0, 6.0))
            victims = self._chance.choice((self.hosts, self.bots))
            is_bot = victims is self.bots
            victim = await self._active_bot() if is_bot else self._chance.choice(victims)
            how = self._chance.choice(("kill", "stop"))
            if not is_bot and not all(one.is_ready.is_set() for one in victims):
                continue
            self.counts[f"{how} {victim.name}"] += 1
            if victims is self.hosts:
                self._lost_at = time.monotonic()
            if how == "kill":
                victim.signal(signal.SIGKILL)
                victim.is_ready.clear()
            else:
                victim.signal(signal.SIGSTOP)
                try:
                    await asyncio.sleep(self._chance.uniform(0.5, 3 * _LOST_SECONDS))
                finally:
                    victim.signal(signal.SIGCONT)
            async with asyncio.timeout(60):
                await (self._active_bot() if is_bot else victim.is_ready.wait())

    async def _active_bot(self) -> _Process:
        while True:
            for bot in self.bots:
                if bot.is_ready.is_set():
                    return bot
            await asyncio.sleep(0.05)


def _unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Let there be chaos; tell all that was wrong afterwards."""
    seed = 1
    async with Chaos.opened(seed) as chaos:
        await chaos.run(effort.chaos_seconds)
        notes = {"seed": seed, "counts": dict(chaos.counts), "wrong": chaos.wrong}
        name = f"{effort.chaos_seconds:g} s of kills and stops: lost unsaid, doubled or crossed"
        return [metrics.Measure(name, "", [len(chaos.wrong)], bar=0.0, notes=notes)]


async def run_crowd(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Let many sessions speak at once, with the active bot; tell all that was mixed up."""
    count = 2 * effort.sessions
    async with Chaos.opened(seed=1) as chaos:
        first, second = await chaos.crowd(count)
        where = f"{count} sessions at once over two hosts and two bots"
        return [
            metrics.Measure(f"{where}: first turn, Python with it", "s", first),
            metrics.Measure(f"{where}: second turn", "s", second),
            metrics.Measure(
                f"{where}: mixed up or not answered",
                "",
                [len(chaos.wrong)],
                bar=0.0,
                notes={"wrong": chaos.wrong},
            ),
        ]
