"""The table of what survives what, in docs: real processes, killed while people are at the page."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import time
import uuid

import pytest

from bench import bot_processes, page_visitors
from interpreter_bot import settings
from interpreter_bot.hosts import host_sockets, remote_host
from interpreter_bot.wording import session_words
from tests import waiting

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(240)]

ROOT = pathlib.Path(__file__).parents[3]
MODEL = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
BEGIN = "kept = 7\ngone = iter(one for one in 'ab')\nopen('file.txt', 'w').write('here')"
# A generator cannot be saved: where it is there, nothing was ever gone.
LOOK = "print(kept, next(gone) if 'gone' in globals() else 'gone', open('file.txt').read())"
# It goes on until the file is there; what is said meanwhile waits.
HOLD = """
import os, time
open('begun', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.05)
print('over')
"""
COUNT = "print(open('count', 'a').write('x'), os.path.getsize('count'))"
LIVE, SAVED = "7 a here", "7 gone here"


class Person:
    """Somebody at the page of a bot that may be killed."""

    def __init__(self, bot):
        self.bot = bot
        self.visitor = page_visitors.Visitor("session-of-a-survivor", lambda prompt: prompt)

    async def begin(self, code):
        """Say that code is to be run; gives the name of the request."""
        name = uuid.uuid4().hex
        await self.visitor.send_message(name, code, is_code=True)
        return name

    async def run(self, code):
        """Run code; gives what it printed, and all that was said beside."""
        return await self.ended(await self.begin(code))

    async def ended(self, name):
        await self.until(lambda: any(one["type"] == "over" for one in self.shown(name)))
        events = self.shown(name)
        said = [one["text"] for one in events if one["type"] == "announcement"]
        said += [one["text"] for one in events if one["type"] in ("result", "notice", "error")]
        return "\n".join(page_visitors.list_printed_lines(events)), " ".join(said)

    def shown(self, name):
        """What the page shows of a request; it changes when the page comes back."""
        return self.visitor.shown.get(name, [])

    async def until(self, is_so):
        await waiting.until(is_so)

    async def saved(self, *, runs=1):
        """Wait until what so many pieces of code left is saved."""
        path = host_sockets.newest_link(self.bot.paths)
        async with remote_host.RemoteHost.open(path) as host, asyncio.timeout(60):
            while True:
                [key] = await host.statuses()
                held = await host.variables(key)
                if held.saved is not None and held.saved.run_count >= runs:
                    return
                await asyncio.sleep(0.05)

    async def noticed(self):
        """Wait until the host knows that a kernel is no more: what runs in it then is lost."""
        path = host_sockets.newest_link(self.bot.paths)
        async with remote_host.RemoteHost.open(path) as host, asyncio.timeout(60):
            while not all(  # noqa: ASYNC110 - nobody tells
                one.loss_reason for one in (await host.statuses()).values()
            ):
                await asyncio.sleep(0.02)


@pytest.fixture
def bot(short_path):
    return bot_processes.BotProcess(short_path, MODEL, "none")


@contextlib.asynccontextmanager
async def being_there(bot):
    """Be at the page while the bot runs, which ends in order; gives the person."""
    person = Person(bot)

    def move(address):
        person.visitor.address = address
        # From here on, what is shown is what this bot shows.
        person.visitor.shown = {}

    async with bot.running(move), person.visitor:
        yield person


async def kill(bot, victim):
    """Kill -9; "machine" is everything, and what does not lie on a disk."""
    host = await bot.host_pid()
    if victim == "bot":
        bot.kill()
    elif victim == "host":
        os.kill(host, signal.SIGKILL)
    elif victim == "machine":

        def reboot():
            for pid in bot_processes.list_process_tree(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(bot.paths.runtime)

        bot.on_death = reboot
        bot.kill()
    else:
        pid = bot_processes.find_host_process(host, victim)
        assert pid, "0 would be everybody here"
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("victim", "told"),
    [("bot", LIVE), ("fork server", LIVE), ("kernel", SAVED), ("host", SAVED), ("machine", SAVED)],
)
async def test_variables_and_files_survive_as_readme_says(bot, victim, told):
    async with being_there(bot) as person:
        await person.run(BEGIN)
        await person.saved()
        await kill(bot, victim)
        if victim == "kernel":
            await person.noticed()
        printed, said = await person.run(LOOK)
        assert printed == told
        assert ("Your variables are back (1 of 2)" in said) == (told is SAVED), said
        assert ("Not kept: gone (a generator)" in said) == (told is SAVED), said


async def waiting_behind_another(bot, person):
    """Say two things; gives the file that ends the first, and both names."""
    first = await person.begin(HOLD)
    await person.until(lambda: list(bot.paths.data.rglob("begun")))
    second = await person.begin(COUNT)
    await person.until(lambda: second in person.visitor.accepted)
    [begun] = bot.paths.data.rglob("begun")
    return begun.with_name("go"), first, second


async def killed_and_back(bot, person):
    former = person.visitor.address
    bot.kill()
    await person.until(lambda: person.visitor.address != former)


def waits(person, name):
    """Whether a request is shown, and not as one that is lost."""
    return name in person.visitor.shown and page_visitors.LOST not in person.shown(name)


async def test_what_waited_when_the_bot_was_killed_is_begun_again_by_the_next_at_once(bot):
    async with being_there(bot) as person:
        go, first, second = await waiting_behind_another(bot, person)
        await killed_and_back(bot, person)
        # A look each minute would find it as well.
        async with asyncio.timeout(30):
            await person.until(lambda: waits(person, second))
        assert not go.with_name("count").exists()
        go.touch()
        assert (await person.ended(first))[0] == "over"
        assert await person.ended(second) == ("1 1", "")


async def test_what_waited_when_two_bots_were_killed_is_told_and_not_begun_again(bot):
    async with being_there(bot) as person:
        go, first, second = await waiting_behind_another(bot, person)
        await killed_and_back(bot, person)
        await person.until(lambda: waits(person, second))
        await killed_and_back(bot, person)
        async with asyncio.timeout(30):
            await person.until(lambda: session_words.MESSAGE_LOST in person.visitor.notices)
        go.touch()
        assert (await person.ended(first))[0] == "over"
        assert await person.run("print(os.path.exists('count'))") == ("False", "")
        assert person.shown(second) == [page_visitors.LOST]


async def test_variables_survive_an_orderly_end_of_the_bot_and_its_host(bot):
    async with being_there(bot) as person:
        await person.run(BEGIN)
    assert await bot.host_pid() == 0
    async with being_there(bot) as person:
        printed, said = await person.run(LOOK)
    assert printed == SAVED
    assert "Your variables are back (1 of 2)" in said


async def test_code_goes_on_and_is_shown_by_the_next_bot_after_an_orderly_end(bot):
    async with being_there(bot) as person:
        await person.run(BEGIN)
        slow = "print('begun', flush=True)\n" + HOLD + "print(kept, next(gone))"
        name = await person.begin(slow)
        await person.until(lambda: "begun" in page_visitors.list_printed_lines(person.shown(name)))
        host, former, began = await bot.host_pid(), person.visitor.address, time.monotonic()
        bot.restart()
        await person.until(lambda: person.visitor.address != former)
        assert time.monotonic() - began < 15
        [begun] = bot.paths.data.rglob("begun")
        begun.with_name("go").touch()
        printed, said = await person.ended(name)
        assert printed == "begun\nover\n7 a"
        assert "again" not in said
        assert await bot.host_pid() == host
    assert await bot.host_pid() == 0


async def test_variables_live_on_in_a_service_while_the_bot_is_restarted(bot):
    bot.environment["INTERPRETER_BOT_HOST__MODE"] = "service"
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "interpreter_bot", "host"),
        env=bot.environment,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert b"HostReady" in await service.stdout.readline()
        async with being_there(bot) as person:
            await person.run(BEGIN)
        assert await bot.host_pid() == service.pid
        async with being_there(bot) as person:
            assert await person.run(LOOK) == (LIVE, "")
    finally:
        service.terminate()
        await service.communicate()
