"""Files are let go when they are old or too many, never without a word."""

import asyncio
import contextlib
import dataclasses
import datetime
import logging
import os

import pydantic
import pytest
import sqlalchemy

from interpreter_bot import errors, settings, values
from interpreter_bot.sessions import requests, retention, session_files
from interpreter_bot.store import columns, records
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import KEY, attachment, make_code_request

pytestmark = pytest.mark.kernel

MIB = settings.MIB
PLOT = """
import IPython.display as shown
shown.display(shown.Image(data=bytes.fromhex("89504e470d0a1a0a") + bytes(100), format="png"))
del shown
"""


def key(thread):
    return values.SessionKey("web", thread=thread)


async def wait_until(condition):
    """Wait for a condition that holds after a few steps of the loop, perhaps only briefly."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


class Keeper:
    """Retention of a bot's files, with ages that a test sets."""

    def __init__(self, bot):
        self.bot = bot
        self.services = bot.service.services
        self.retention = retention.Retention(self.services, bot.service)
        self.notices = []
        bot.service.notify_through("web", self._tell)

    def warn_at_most(self, count):
        self.retention = retention.Retention(self.services, self.bot.service, max_warnings=count)

    async def _tell(self, session, sentence):
        self.notices.append((session.thread, sentence))

    async def age(self, days, *threads):
        """Make sessions, and the notices to their people, older by some days."""
        span = datetime.timedelta(days=days)
        for thread in threads:
            session = await self.session(thread)
            files = dict(session.files)
            if "at" in files:
                at = datetime.datetime.fromisoformat(files["at"])
                files["at"] = (at - span).isoformat()
            table = records.Session
            change = sqlalchemy.update(table).where(table.id == session.id)
            async with self.services.database.engine.begin() as connection:
                await connection.execute(change.values(used=session.used - span, files=files))

    async def session(self, thread):
        return await self.services.database.sessions.find(key(thread))

    async def files(self, thread):
        return [file.name for file in await self.bot.service.queries.files(key(thread))]

    async def fill(self, thread, *, mib=1, person="u1"):
        """Record a turn of a person, and put a file of theirs into the session."""
        session = await self.services.database.sessions.open(key(thread))
        turn = await self.services.database.turns.start(session.id, person=person, text="")
        await self.services.database.turns.finish(turn.id, values.TurnStatus.DONE)
        await self.bot.service.put_file(key(thread), attachment("f", bytes(mib * MIB)))


@pytest.fixture
def open_keeper(open_bot):
    @contextlib.asynccontextmanager
    async def open_keeper(*script, **limits):
        async with open_bot(*script, retention=settings.Retention(**limits)) as bot:
            yield Keeper(bot)

    return open_keeper


async def test_old_files_go_after_a_warning_and_who_comes_back_is_told(open_keeper, tmp_path):
    async with open_keeper(openai_server.text("Oh.")) as keeper:
        await keeper.fill("t")
        await keeper.bot.run(PLOT)
        await keeper.services.hosts.pool.release(values.format_key(KEY))
        [_, turn] = await keeper.bot.service.queries.history(KEY)
        [digest] = [event.output.sha256 for event in turn.events if hasattr(event, "output")]
        [blob] = (tmp_path / "data" / "kept").glob("*/*")
        os.utime(blob, (0, 0))
        await keeper.fill("young")
        assert await keeper.retention.apply() == 0
        assert keeper.notices == []
        await keeper.age(28, "t")
        assert await keeper.retention.apply() == 0
        [(thread, warning)] = keeper.notices
        assert thread == "t"
        assert "for 28 days. In 3 days its files" in warning
        assert "(1 MiB)" in warning
        assert await keeper.bot.service.queries.load_file_notice(KEY) == warning
        await keeper.age(1.9, "t")
        assert await keeper.retention.apply() == 0
        assert await keeper.files("t") == ["f"]
        await keeper.age(1.2, "t")
        assert await keeper.retention.apply() == 1
        assert len(keeper.notices) == 2
        assert await keeper.files("t") == []
        assert await keeper.files("young") == ["f"]
        assert await keeper.bot.service.queries.load_blob(digest) is None
        # What was said stays.
        assert (await keeper.bot.service.queries.history(KEY))[1].events == turn.events
        gone = await keeper.bot.service.queries.load_file_notice(KEY)
        assert gone == keeper.notices[1][1]
        assert "deleted: nobody had used it for 31 days. Messages stay." in gone
        reply = await keeper.bot.ask("and now?")
        assert reply.contents("announcement") == [gone]
        assert gone in str(keeper.bot.server.requests[0].messages)
        again = await keeper.bot.run("pass")
        assert again.contents("announcement") == []
        assert await keeper.bot.service.queries.load_file_notice(KEY) == ""


@pytest.mark.slow
async def test_variables_and_files_that_went_are_told_in_one_sentence(open_keeper):
    async with open_keeper() as keeper:
        await keeper.bot.run("x = 1\nopen('f', 'w').write('1' * 5000)")
        await keeper.services.hosts.pool.release(values.format_key(KEY))
        await keeper.age(27, "t")
        await keeper.retention.apply()
        await keeper.age(30, "t")
        assert await keeper.retention.apply() == 1
        reply = await keeper.bot.run("print(1)")
    [told] = reply.contents("announcement")
    assert "earlier one (x)." in told
    assert "were deleted" in told
    assert "are kept." not in told


@pytest.mark.slow
@pytest.mark.first_case
@pytest.mark.parametrize("use", ["turn", "upload"])
async def test_any_use_refutes_a_warning(open_keeper, use):
    async with open_keeper() as keeper:
        await keeper.fill("t")
        await keeper.age(29, "t")
        await keeper.retention.apply()
        await keeper.age(30, "t")
        if use == "turn":
            await keeper.bot.run("pass")
            await keeper.services.hosts.pool.release(values.format_key(KEY))
        else:
            await keeper.bot.service.put_file(KEY, attachment("new.csv", b"1"))
        assert await keeper.bot.service.queries.load_file_notice(KEY) == ""
        # As old as before: only that it was used stands between it and its end.
        await keeper.age(31, "t")
        assert await keeper.retention.apply() == 0
        assert [thread for thread, _ in keeper.notices] == ["t", "t"]
        assert "f" in await keeper.files("t")


async def test_of_several_bots_at_once_one_warns_and_one_tells_of_the_end(open_keeper):
    async with open_keeper() as keeper:
        await keeper.fill("t")
        await keeper.age(28, "t")
        other = retention.Retention(keeper.services, keeper.bot.service)
        await asyncio.gather(keeper.retention.apply(), other.apply())
        assert len(keeper.notices) == 1
        await keeper.age(4, "t")
        stale = await keeper.session("t")
        assert await keeper.retention.apply() == 1
        # Another process has no lane in common with this one: it acts on what it read before.
        assert not await keeper.bot.service.delete_files(stale, "Deleted, once more.")
        assert len(keeper.notices) == 2


@pytest.mark.slow
async def test_a_deletion_cut_short_is_finished_without_a_word(open_keeper):
    async with open_keeper() as keeper:
        for thread in "ab":
            await keeper.fill(thread)
            session = await keeper.session(thread)
            row = {"gone": "They were deleted.", "at": columns.now().isoformat()}
            await keeper.services.database.sessions.note_files(session.id, row)
        # What came after it is no part of it.
        await keeper.bot.service.put_file(key("b"), attachment("new", b"1"))
        assert await keeper.retention.apply() == 1
        assert keeper.notices == []
        assert await keeper.files("a") == []
        assert await keeper.files("b") == ["f", "new"]
        assert await keeper.bot.service.queries.load_file_notice(key("a")) == "They were deleted."


@pytest.mark.slow
async def test_of_a_deletion_that_nobody_was_told_of_people_hear_when_they_come_back(open_keeper):
    async with open_keeper() as keeper:
        await keeper.fill("t")
        # As far as a bot comes that is killed before it tells.
        assert await session_files.delete_unused(
            keeper.services, await keeper.session("t"), "They were deleted.", ()
        )
        assert await keeper.retention.apply() == 0
        assert keeper.notices == []
        assert await keeper.bot.service.queries.load_file_notice(KEY) == "They were deleted."
        assert (await keeper.bot.run("1")).contents("announcement") == ["They were deleted."]


@pytest.mark.slow
async def test_a_deletion_that_began_ends_though_its_job_is_cancelled(open_keeper):
    async with open_keeper(total_bytes=1) as keeper:
        await keeper.fill("t")
        job = asyncio.create_task(keeper.retention.apply())
        await wait_until(lambda: values.format_key(KEY) in keeper.services.hosts.pool._file_work)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert await keeper.files("t") == []
        assert "were deleted" in await keeper.bot.service.queries.load_file_notice(KEY)


async def test_an_upload_in_the_moment_of_deletion_is_kept(open_keeper):
    async with open_keeper() as keeper:
        await keeper.fill("early")
        await keeper.fill("late")
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def slow():
            arrived.set()
            await go_on.wait()
            yield b"1"

        service = keeper.bot.service
        sent = service.put_file(key("early"), requests.Attachment("new", slow, None))
        sending = asyncio.create_task(sent)
        await arrived.wait()
        # It is known to be used by now; only the upload itself speaks against it.
        assert not await service.delete_files(await keeper.session("early"), "Deleted.")
        assert await service.queries.load_file_notice(key("early")) == ""
        go_on.set()
        await sending
        assert await keeper.files("early") == ["f", "new"]

        deleting = asyncio.create_task(service.delete_files(await keeper.session("late"), "Gone."))
        await wait_until(
            lambda: values.format_key(key("late")) in keeper.services.hosts.pool._file_work
        )
        await service.put_file(key("late"), attachment("new", b"1"))
        assert await deleting
        assert await keeper.files("late") == ["new"]


async def test_people_hear_of_a_deletion_when_it_is_done(open_keeper):
    async with open_keeper(total_bytes=1) as keeper:
        await keeper.fill("t")
        seen = []

        async def tell(session, sentence):
            seen.append((await keeper.files("t"), keeper.bot.service.is_busy(session)))

        keeper.bot.service.notify_through("web", tell)
        assert await keeper.retention.apply() == 1
        assert seen == [([], False)]


async def test_a_warning_that_reached_no_one_does_not_count(open_keeper):
    async with open_keeper() as keeper:
        await keeper.fill("t")
        await keeper.age(40, "t")

        async def fail(session, sentence):
            raise errors.BotError("The channel is gone.")

        keeper.bot.service.notify_through("web", fail)
        for _ in range(2):
            assert await keeper.retention.apply() == 0
            assert await keeper.bot.service.queries.load_file_notice(KEY) == ""
            await keeper.age(4, "t")
        keeper.bot.service.notify_through("web", keeper._tell)
        assert await keeper.retention.apply() == 0
        assert "are deleted. To keep them" in keeper.notices[0][1]
        await keeper.age(3.1, "t")
        assert await keeper.retention.apply() == 1


@pytest.mark.slow
async def test_who_could_not_be_told_does_not_hold_up_others(open_keeper):
    async with open_keeper() as keeper:
        keeper.warn_at_most(1)
        for thread in "ab":
            await keeper.fill(thread)
        await keeper.age(40, *"ab")

        async def tell(session, sentence):
            if session.thread == "a":
                raise errors.BotError("The channel is gone.")
            await keeper._tell(session, sentence)

        keeper.bot.service.notify_through("web", tell)
        for _ in range(2):
            await keeper.retention.apply()
        assert [thread for thread, _ in keeper.notices] == ["b"]


@pytest.mark.slow
async def test_what_is_old_and_in_use_counts_towards_the_budgets(open_keeper):
    async with open_keeper(total_bytes=3 * MIB) as keeper:
        await keeper.fill("old", mib=2)
        await keeper.bot.run("pass", key=key("old"))
        await keeper.age(28, "old")
        await keeper.retention.apply()
        await keeper.age(4, "old")
        await keeper.fill("next", mib=2, person="u2")
        assert await keeper.retention.apply() == 1
        assert [await keeper.files(one) for one in ("old", "next")] == [["f"], []]


async def test_a_bot_that_ends_deletes_nothing_and_logs_no_fault(open_keeper, caplog):
    async with open_keeper(total_bytes=1) as keeper:
        await keeper.fill("t")
        await keeper.bot.service.drain()
        assert await keeper.retention.apply() == 0
        assert await keeper.files("t") == ["f"]
    assert not [one for one in caplog.records if one.exc_info]


@pytest.mark.slow
async def test_a_workspace_that_cannot_be_measured_is_in_the_log(open_keeper, caplog):
    async with open_keeper() as keeper:
        await keeper.fill("t")
        directory = (await keeper.services.hosts.pool.workspace(values.format_key(KEY))).directory
        directory.rename(directory.with_name("elsewhere"))
        assert await keeper.retention.apply() == 0
        assert "is not counted" in caplog.text


@pytest.mark.slow
async def test_what_was_never_warned_of_is_warned_of_first_however_old(open_keeper):
    async with open_keeper() as keeper:
        await keeper.fill("t")
        await keeper.age(400, "t")
        for_ever = settings.Retention(days=0, person_bytes=0)
        config = keeper.services.config.model_copy(update={"retention": for_ever})
        kept = dataclasses.replace(keeper.services, config=config)
        assert await retention.Retention(kept, keeper.bot.service).apply() == 0
        assert keeper.notices == []
        assert await keeper.retention.apply() == 0
        assert "for 400 days. In 3 days" in keeper.notices[0][1]
        assert await keeper.retention.apply() == 0
        assert len(keeper.notices) == 1
        assert await keeper.files("t") == ["f"]


async def test_the_budget_of_a_person_takes_their_least_recently_used(open_keeper):
    async with open_keeper(person_bytes=5 * MIB) as keeper:
        for thread, person in (("a", "u1"), ("b", "u2"), ("c", "u1"), ("d", "u1")):
            await keeper.fill(thread, mib=2, person=person)
        await keeper.age(3, "c")
        await keeper.age(2, "a", "b")
        assert await keeper.retention.apply() == 1
        [(thread, sentence)] = keeper.notices
        assert thread == "c"
        assert "of one person held more than 5 MiB" in sentence
        assert [await keeper.files(one) for one in "abcd"] == [["f"], ["f"], [], ["f"]]
        assert await keeper.retention.apply() == 0


@pytest.mark.slow
async def test_the_budget_of_all_spares_who_runs_or_has_a_kernel(open_keeper):
    async with open_keeper(total_bytes=3 * MIB) as keeper:
        await keeper.fill("old", mib=2)
        await keeper.fill("next", mib=2, person="u2")
        # The oldest is used just now, if only by variables that wait.
        await keeper.bot.run("x = 1", key=key("old"))
        await keeper.age(9, "old")
        assert await keeper.retention.apply() == 1
        assert "all conversations together held more than 3 MiB" in keeper.notices[0][1]
        assert [await keeper.files(one) for one in ("old", "next")] == [["f"], []]


async def test_a_turn_that_waits_finds_its_files(open_keeper):
    async with open_keeper(total_bytes=1) as keeper:
        await keeper.fill("t")
        request = make_code_request("import time; time.sleep(0.5); print(open('f').read(1))")
        turn_task = asyncio.create_task(keeper.bot.service.handle(request, replies.Reply()))
        await asyncio.sleep(0)
        assert keeper.bot.service.is_busy(KEY)
        assert await keeper.retention.apply() == 0
        assert (await turn_task).status is values.TurnStatus.DONE
        assert await keeper.files("t") == ["f"]


@pytest.mark.parametrize("days", [3, 2, 0.5])
def test_a_span_that_warns_at_once_is_refused(days):
    with pytest.raises(pydantic.ValidationError, match="days must be more than 3"):
        settings.Retention(days=days)
    assert settings.Retention(days=0).days == 0


async def test_of_years_of_threads_few_are_warned_at_a_time(open_keeper):
    async with open_keeper() as keeper:
        keeper.warn_at_most(2)
        for thread in "abc":
            await keeper.fill(thread)
        await keeper.age(50, *"abc")
        for count in (2, 3, 3):
            await keeper.retention.apply()
            assert len(keeper.notices) == count


async def test_the_operator_hears_once_what_holds_a_disk_that_is_nearly_full(open_bot, caplog):
    async with open_bot(has_model=False) as bot:
        keeper = Keeper(bot)
        await keeper.fill("t", mib=3)
        await keeper.retention.report()
        assert "nearly full" not in caplog.text
        limits = settings.Limits(disk_reserve_bytes=2**60)
        config = keeper.services.config.model_copy(update={"limits": limits})
        short = dataclasses.replace(keeper.services, config=config)
        reporting = retention.Retention(short, bot.service)
        with caplog.at_level(logging.ERROR):
            await reporting.report()
            await reporting.report()
    [record] = [one for one in caplog.records if "nearly full" in one.getMessage()]
    assert "3 MiB in files of 1 conversations" in record.getMessage()
    assert "thread='t'" in record.getMessage()
