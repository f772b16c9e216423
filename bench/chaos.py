"""Kill and stop processes of a fleet: an active and a standby bot, and two hosts.

The bots share a PostgreSQL database, and the hosts share a bucket. Each turn of a session adds a
number to a variable and to a file, and prints both. The check knows which numbers were
acknowledged, and when. No number may appear twice, in another order or in another session. A number
may be missing only if a notice says so, and never if it was acknowledged long enough before the
last loss of a host.
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
# Until a turn's results are saved and archived: a pause of one second, more on a busy machine.
_ARCHIVING_SECONDS = 15.0
_CODE = """
numbers = globals().get('numbers', []) + ['{number}']
with open('numbers.txt', 'a') as file: _ = file.write('{number}\\n')
print('variable', *numbers)
print('file', *open('numbers.txt').read().split())
"""


@dataclasses.dataclass(slots=True)
class _Session:
    """A session: the numbers that were sent, and when each was acknowledged."""

    name: str
    sent_numbers: list[str] = dataclasses.field(default_factory=list)
    acknowledged_at: dict[str, float] = dataclasses.field(default_factory=dict)
    # Numbers whose loss a notice reported: they may not come back, and count as lost only once.
    reported_losses: dict[str, set[str]] = dataclasses.field(
        default_factory=lambda: {"variable": set(), "file": set()}
    )


class _Process:
    """A process of the fleet, which is restarted after each kill."""

    def __init__(
        self,
        name: str,
        module: tuple[str, ...],
        config: settings.Settings,
        extra_environment: dict[str, str],
    ) -> None:
        self.name = name
        self._module = module
        self._environment = dict(os.environ) | config.for_host() | extra_environment
        if config.store.url:
            self._environment["INTERPRETER_BOT_STORE__URL"] = config.store.url
        self._environment["INTERPRETER_BOT_SNAPSHOTS__BYTES"] = "2147483648"
        self.process: asyncio.subprocess.Process | None = None
        self.pending_answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.on_late_answer: Callable[[dict[str, Any]], None] = lambda _: None
        self.is_ready = asyncio.Event()
        self._log = config.paths.data.parent / f"{name}.log"

    async def run(self) -> None:
        """Run the process and restart it after each end; never returns."""
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
                    message = json.loads(line)
                    # The first form comes from a bot, the second from a host.
                    if "ready" in message or message.get("type") == messages.HostReady.__name__:
                        self.is_ready.set()
                    elif message["id"] in self.pending_answers:
                        self.pending_answers.pop(message["id"]).set_result(message)
                    else:
                        # The turn's bot was killed, or the turn took too long.
                        self.on_late_answer(message)
                await self.process.wait()
            finally:
                self.is_ready.clear()
                for answer in self.pending_answers.values():
                    answer.cancel()
                self.pending_answers.clear()
                if self.process.returncode is None:
                    self.process.kill()
                    # This also reads the pipes to their ends, which closes them.
                    await self.process.communicate()

    def signal(self, signum: signal.Signals) -> None:
        """Send the process a signal, if it is running."""
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                self.process.send_signal(signum)

    async def ask(self, session: str, number: str) -> dict[str, Any] | None:
        """Run the code of a number; return the answer, or None if none came."""
        await self.is_ready.wait()
        assert self.process is not None
        assert self.process.stdin is not None
        answer = self.pending_answers[number] = asyncio.get_running_loop().create_future()
        code = _CODE.format(number=number)
        request = json.dumps({"session": session, "id": number, "code": code})
        try:
            self.process.stdin.write(f"{request}\n".encode())
            async with asyncio.timeout(_TURN_SECONDS):
                return await answer
        except (TimeoutError, ConnectionError):
            return None
        except asyncio.CancelledError:
            if answer.cancelled():
                return None
            raise
        finally:
            self.pending_answers.pop(number, None)


class Chaos:
    """All processes, the sessions that use them, and the kills. Use `open`, then `run`."""

    def __init__(
        self, seed: int, directory: pathlib.Path, database: str, login: dict[str, str]
    ) -> None:
        self._random = random.Random(seed)
        self._sessions = [_Session(f"s{number}") for number in range(_SESSIONS)]
        self.faults: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        # When a host was last killed or stopped.
        self._last_loss_at = 0.0
        authority = certificate_authorities.CertificateAuthority(directory / "ca")
        host_certificate = authority.issue(["127.0.0.1"], is_bot=False, days=1)
        bot_certificate = authority.issue(["bot"], is_bot=True, days=1)
        self.hosts, self.bots, addresses = [], [], []
        for name in ("host-a", "host-b"):
            addresses.append(address := f"127.0.0.1:{_find_unused_port()}")
            config = settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0),
                paths=settings.Paths(data=directory / name / "d", runtime=directory / name / "r"),
                host=settings.Host(
                    listen=address, tls=host_certificate, store="s3://reports/chaos"
                ),
            )
            config.paths.data.mkdir(parents=True)
            self.hosts.append(_Process(name, ("interpreter_bot", "host"), config, login))
        for name in ("bot-a", "bot-b"):
            config = settings.Settings(
                paths=settings.Paths(data=directory / name / "d", runtime=directory / name / "r"),
                store=settings.Store(url=database),
                host=settings.Host(
                    fleet=tuple(addresses), tls=bot_certificate, lost_seconds=_LOST_SECONDS
                ),
            )
            config.paths.data.mkdir(parents=True)
            self.bots.append(_Process(name, ("bench.chaos_bots",), config, {}))

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, seed: int) -> AsyncIterator[Chaos]:
        """Start all processes; end them and remove their files afterwards."""
        with (
            tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory,
            servers.Server.run() as server,
            server.database() as address,
            buckets.serving("s3", {}) as bucket,
        ):
            chaos = cls(seed, pathlib.Path(directory), address, buckets.s3_login(bucket))
            for bot in chaos.bots:
                bot.on_late_answer = chaos._take_late_answer
            tasks = []
            try:
                for processes in (chaos.hosts, chaos.bots):
                    tasks += [asyncio.create_task(process.run()) for process in processes]
                    async with asyncio.timeout(60):
                        if processes is chaos.hosts:
                            await asyncio.gather(
                                *(process.is_ready.wait() for process in processes)
                            )
                        else:
                            await chaos._active_bot()
                yield chaos
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def run(self, seconds: float) -> None:
        """Take turns and kill processes for a while, then check that all sessions still answer."""
        end = time.monotonic() + seconds
        kill_task = asyncio.create_task(self._kill_processes(end))
        await asyncio.gather(*(self._take_turns(session, end) for session in self._sessions))
        await kill_task
        for session in self._sessions:
            for _ in range(3):
                if await self._take_turn(session):
                    break
            else:
                self.faults.append(f"{session.name} never answers again")

    async def run_crowd(self, count: int) -> list[list[float]]:
        """Let `count` new sessions take two turns each, all at once; return the seconds by turn."""
        sessions = [_Session(f"crowd-{number}") for number in range(count)]

        async def time_turn(session: _Session) -> float:
            start_time = time.monotonic()
            if not await self._take_turn(session):
                self.faults.append(f"{session.name} has no answer")
            return time.monotonic() - start_time

        return [await asyncio.gather(*map(time_turn, sessions)) for _ in range(2)]

    async def _take_turns(self, session: _Session, end: float) -> None:
        while time.monotonic() < end:
            await self._take_turn(session)
            await asyncio.sleep(self._random.uniform(0, 1.5))

    async def _take_turn(self, session: _Session) -> bool:
        """Take a turn with the active bot; return whether it was acknowledged."""
        number = f"{session.name}.{len(session.sent_numbers)}"
        session.sent_numbers.append(number)
        bot = await self._active_bot()
        answer = await bot.ask(session.name, number)
        self.counts["turns"] += 1
        if answer is None:
            self.counts["turns without an answer"] += 1
            return False
        return self._check_answer(session, answer)

    def _take_late_answer(self, answer: dict[str, Any]) -> None:
        self.counts["turns with a late answer"] += 1
        self._check_answer(
            next(session for session in self._sessions if answer["id"] in session.sent_numbers),
            answer,
        )

    def _check_answer(self, session: _Session, answer: dict[str, Any]) -> bool:
        """Check an answer; return whether it acknowledges its number."""
        number = answer["id"]
        if answer["status"] != "done":
            self.counts["turns that failed"] += 1
            return False
        numbers_by_kind = {line.split()[0]: line.split()[1:] for line in answer["lines"] if line}
        if not {"variable", "file"} <= numbers_by_kind.keys():
            # Its execution failed, so a notice must say why.
            if not answer["notices"]:
                self.faults.append(f"{number} has neither output nor a notice: {answer}")
            self.counts["turns that failed"] += 1
            return False
        for kind in ("variable", "file"):
            self._check_numbers(session, kind, numbers_by_kind[kind], answer)
        session.acknowledged_at[number] = time.monotonic()
        return True

    def _check_numbers(
        self, session: _Session, kind: str, numbers: list[str], answer: dict[str, Any]
    ) -> None:
        context = f"{answer['id']}, {kind}: {numbers}; notices: {answer['notices']}"
        if len(set(numbers)) < len(numbers):
            self.faults.append(f"twice in {context}")
        if numbers != [number for number in session.sent_numbers if number in set(numbers)]:
            self.faults.append(f"crossed or disordered in {context}")
        # Later numbers may be missing from a late answer.
        earlier = session.sent_numbers[: session.sent_numbers.index(answer["id"])]
        missing = (
            session.acknowledged_at.keys()
            & set(earlier) - set(numbers) - session.reported_losses[kind]
        )
        if not missing:
            return
        session.reported_losses[kind] |= missing
        self.counts[f"numbers lost of a {kind}"] += len(missing)
        if not answer["notices"]:
            self.faults.append(f"lost without a sentence {sorted(missing)} in {context}")
        archived = [
            number
            for number in missing
            if session.acknowledged_at[number] < self._last_loss_at - _ARCHIVING_SECONDS
        ]
        if archived:
            self.faults.append(f"lost though it was archived {sorted(archived)} in {context}")

    async def _kill_processes(self, end: float) -> None:
        """Kill or stop the active bot or one of the hosts at random; never both hosts at once."""
        while time.monotonic() < end:
            await asyncio.sleep(self._random.uniform(2.0, 6.0))
            victims = self._random.choice((self.hosts, self.bots))
            is_bot = victims is self.bots
            victim = await self._active_bot() if is_bot else self._random.choice(victims)
            method = self._random.choice(("kill", "stop"))
            if not is_bot and not all(process.is_ready.is_set() for process in victims):
                continue
            self.counts[f"{method} {victim.name}"] += 1
            if victims is self.hosts:
                self._last_loss_at = time.monotonic()
            if method == "kill":
                victim.signal(signal.SIGKILL)
                victim.is_ready.clear()
            else:
                victim.signal(signal.SIGSTOP)
                try:
                    await asyncio.sleep(self._random.uniform(0.5, 3 * _LOST_SECONDS))
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


def _find_unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Kill and stop processes for a while; report all faults."""
    seed = 1
    async with Chaos.open(seed) as chaos:
        await chaos.run(effort.chaos_seconds)
        notes = {"seed": seed, "counts": dict(chaos.counts), "wrong": chaos.faults}
        name = f"{effort.chaos_seconds:g} s of kills and stops: lost unsaid, doubled or crossed"
        return [metrics.Measure(name, "", [len(chaos.faults)], bar=0.0, notes=notes)]


async def run_crowd(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Let many sessions take turns at once; report their times and all faults."""
    count = 2 * effort.sessions
    async with Chaos.open(seed=1) as chaos:
        first_turns, second_turns = await chaos.run_crowd(count)
        crowd = f"{count} sessions at once over two hosts and two bots"
        return [
            metrics.Measure(f"{crowd}: first turn, Python with it", "s", first_turns),
            metrics.Measure(f"{crowd}: second turn", "s", second_turns),
            metrics.Measure(
                f"{crowd}: mixed up or not answered",
                "",
                [len(chaos.faults)],
                bar=0.0,
                notes={"wrong": chaos.faults},
            ),
        ]
