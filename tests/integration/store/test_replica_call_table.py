"""Calls between replicas, on both databases: done once, by who has what they are about."""

import asyncio
import contextlib
import datetime
import time

import pytest
import sqlalchemy

from interpreter_bot import encryption, errors
from interpreter_bot.sessions import replica_calls
from interpreter_bot.store import columns, liveness, replica_call_table, schema


@contextlib.asynccontextmanager
async def replicas(opening, count):
    """Replicas of the bot on one database, as far as their calls go."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            database = await stack.enter_async_context(opening())
            calls = replica_calls.ReplicaCalls(database.calls)
            await stack.enter_async_context(calls.open())
            found.append(calls)
        yield found


def having(done, answer):
    """Serve what this replica has: notes what is done, and answers."""

    async def work():
        done.append(answer)
        return {"by": answer}

    return lambda content: work if content["of"] == answer else None


async def test_who_has_it_does_it_once_and_answers(opening):
    done = []
    async with replicas(opening, 3) as (asking, *others):
        for number, other in enumerate(others):
            other.serve("stop", having(done, number))
        asked = [asking.ask("stop", {"of": number}) for number in (0, 1, 0)]
        assert await asyncio.gather(*asked) == [{"by": 0}, {"by": 1}, {"by": 0}]
    assert sorted(done) == [0, 0, 1]


async def test_one_that_two_have_is_done_by_one(opening):
    done = []
    async with replicas(opening, 3) as (asking, *others):
        for other in others:
            other.serve("stop", having(done, "both"))
        assert await asking.ask("stop", {"of": "both"}) == {"by": "both"}
    assert done == ["both"]


async def test_what_nobody_has_is_known_at_once(opening):
    async with replicas(opening, 1) as (alone,):
        assert await alone.ask("stop", {"of": "x"}) is None
    async with replicas(opening, 2) as (asking, other):
        other.serve("stop", having([], "y"))
        began = time.monotonic()
        assert await asking.ask("stop", {"of": "x"}) is None
        assert time.monotonic() - began < replica_calls._NOBODY_SECONDS


async def test_a_command_that_uses_the_database_is_asked_nothing(opening):
    async with opening(), replicas(opening, 2) as (asking, other), opening():
        other.serve("stop", having([], "y"))
        began = time.monotonic()
        assert await asking.ask("stop", {"of": "x"}) is None
        assert time.monotonic() - began < replica_calls._NOBODY_SECONDS
    async with opening() as left, replicas(opening, 1) as (asking,):
        async with replica_calls.ReplicaCalls(left.calls).open():
            pass
        began = time.monotonic()
        assert await asking.ask("stop", {"of": "x"}) is None
        assert time.monotonic() - began < replica_calls._NOBODY_SECONDS


async def test_one_that_hangs_is_told_of_and_does_nothing_later(opening, monkeypatch):
    done = []
    async with opening() as late, replicas(opening, 1) as (asking,):
        # It is there, and does not look: nobody knows whether it has that.
        with monkeypatch.context() as patience:
            patience.setattr(replica_calls, "_NOBODY_SECONDS", 0.2)
            async with late.calls.served():
                with pytest.raises(errors.BotError, match="did not answer"):
                    await asking.ask("stop", {"of": "x"})
        calls = replica_calls.ReplicaCalls(late.calls)
        calls.serve("stop", having(done, "x"))
        async with calls.open():
            assert await asking.ask("stop", {"of": "y"}) is None
    assert done == []


@pytest.mark.parametrize(
    ("error", "told"),
    [(errors.KernelError("It is busy."), "It is busy."), (RuntimeError(), "Something went wrong.")],
)
async def test_a_failure_there_is_told_here_at_once(opening, error, told):
    async def fall():
        raise error

    async with replicas(opening, 2) as (asking, other):
        other.serve("stop", lambda _: fall)
        began = time.monotonic()
        with pytest.raises(errors.BotError, match=f"^{told}$"):
            await asking.ask("stop", {})
        assert time.monotonic() - began < replica_calls._NOBODY_SECONDS


async def test_who_dies_at_work_is_told_of(opening, monkeypatch):
    monkeypatch.setattr(replica_calls, "_ANSWER_SECONDS", 0.3)
    async with replicas(opening, 1) as (asking,), opening() as dying, dying.calls.served():
        asked = asyncio.create_task(asking.ask("stop", {}))
        while not (found := await dying.calls.waiting()):  # noqa: ASYNC110 - a table tells nobody
            await asyncio.sleep(0.01)
        assert await dying.calls.take(found[0].id)
        with pytest.raises(errors.BotError, match="did not answer"):
            await asked


async def test_replicas_need_not_have_the_same_time(opening, database, monkeypatch):
    if database.engine.dialect.name == "sqlite":
        pytest.skip("one machine has one clock")
    there = datetime.timedelta(minutes=5)
    for behind in (there, -there):
        async with opening() as one, opening() as other:
            with monkeypatch.context() as context:
                context.setattr(
                    columns, "now", lambda by=behind: datetime.datetime.now(datetime.UTC) - by
                )
                call_id = await one.calls.begin("stop", {})
            assert [call.id for call in await other.calls.waiting()] == [call_id]
            await other.calls.prune()
            assert await other.calls.take(call_id)
            await one.calls.end(call_id)


@pytest.mark.parametrize("verb", ["refuse", "take"])
async def test_a_call_is_looked_at_again_once_the_database_is_back(opening, monkeypatch, verb):
    async with replicas(opening, 2) as (asking, other):
        other.serve("stop", having([], "x"))
        work, faults = getattr(other._calls, verb), [errors.StoreError()]

        async def fall_first(call_id):
            if faults:
                raise faults.pop()
            return await work(call_id)

        monkeypatch.setattr(other._calls, verb, fall_first)
        answer = await asking.ask("stop", {"of": "x" if verb == "take" else "y"})
        assert answer == ({"by": "x"} if verb == "take" else None)
        assert not faults


async def test_a_replica_hears_calls_after_whatever_failed(opening, monkeypatch):
    monkeypatch.setattr(replica_calls, "_RETRY_SECONDS", 0.05)
    async with replicas(opening, 2) as (asking, other):
        other.serve("stop", having([], "x"))
        waiting, faults = other._calls.waiting, [RuntimeError(), OSError()]

        async def fall_first():
            if faults:
                raise faults.pop()
            return await waiting()

        monkeypatch.setattr(other._calls, "waiting", fall_first)
        assert await asking.ask("stop", {"of": "x"}) == {"by": "x"}
        assert not faults


async def test_no_call_is_left(opening, database):
    async with replicas(opening, 2) as (asking, other):
        other.serve("stop", having([], "x"))
        await asking.ask("stop", {"of": "x"})
        await asking.ask("stop", {"of": "y"})
    assert await database.calls.waiting() == ()


async def test_a_call_that_was_not_heard_of_is_found_in_time(opening):
    async with replicas(opening, 2) as (asking, other):
        link = getattr(other._calls._instance, "_connection", None)
        if link is not None:
            await link.execute(sqlalchemy.text("unlisten *"))
        other.serve("stop", having([], "x"))
        # Not at a moment when it looks anyway.
        await asyncio.sleep(0.1)
        assert await asking.ask("stop", {"of": "x"}) == {"by": "x"}


async def test_what_a_call_says_is_deleted_when_it_is_taken(opening):
    seen = []

    async def work():
        seen.extend(await asking._calls.own())
        return {}

    async with replicas(opening, 2) as (asking, other):
        other.serve("answer", lambda _: work)
        await asking.ask("answer", {"answer": "hunter2"})
    assert [call.content for call in seen] == [{}]


async def test_calls_of_dead_replicas_are_deleted_by_others(opening, database, monkeypatch):
    monkeypatch.setattr(replica_call_table, "_OLDEST", datetime.timedelta(seconds=0.5))
    monkeypatch.setattr(replica_calls, "_PRUNE_SECONDS", 0.1)
    monkeypatch.setattr(liveness, "_POLL_SECONDS", 0.02)
    await database.calls.begin("answer", {"answer": "hunter2"})
    async with replicas(opening, 1), asyncio.timeout(60):
        while await database.calls.own():  # noqa: ASYNC110 - a table tells nobody
            await asyncio.sleep(0.05)


async def test_a_call_that_cannot_be_read_harms_no_later_one(opening, monkeypatch):
    monkeypatch.setattr(replica_calls, "_NOBODY_SECONDS", 0.8)
    async with replicas(opening, 2) as (asking, other):
        other.serve("stop", having([], "x"))
        with pytest.raises(errors.BotError, match="did not answer"):
            await asking.ask("stop", {"as": "another release says it"})
        assert await asking.ask("stop", {"of": "x"}) == {"by": "x"}


async def test_a_replica_that_began_later_does_not_refuse_for_another(opening):
    async with replicas(opening, 1) as (asking,), opening() as slow, slow.calls.served():
        holding = replica_calls.ReplicaCalls(slow.calls)
        holding.serve("stop", having([], "x"))
        asked = asyncio.create_task(asking.ask("stop", {"of": "x"}))
        while not (found := await slow.calls.waiting()):  # noqa: ASYNC110 - a table tells nobody
            await asyncio.sleep(0.01)
        async with opening() as late, late.calls.served():
            await late.calls.refuse(found[0].id)
            # Who asked looks at it.
            await asyncio.sleep(replica_calls._LOOK_SECONDS * 2)
            async with holding.open():
                assert await asked == {"by": "x"}


async def test_a_call_of_one_that_died_is_done_by_nobody_later(opening, database):
    done = []
    async with opening() as dead:
        call_id = await dead.calls.begin("stop", {"of": "x"})
    longer = datetime.timedelta(seconds=replica_calls._NOBODY_SECONDS + 3)
    async with opening() as paused:
        assert await paused.calls.waiting()
        async with database.engine.begin() as connection:
            calls = schema.INSTANCE_CALLS
            await connection.execute(sqlalchemy.update(calls).values(began=columns.now() - longer))
        assert not await paused.calls.take(call_id)
    async with replicas(opening, 2) as (asking, begun):
        begun.serve("stop", having(done, "x"))
        assert await asking.ask("stop", {"of": "y"}) is None
    assert done == []


async def test_what_is_typed_is_encrypted_where_replicas_share_keys(opening, tmp_path):
    keys = encryption.KeyRing(encryption.new_key(), tmp_path / "unused")
    async with opening() as one, opening() as two, two.calls.served():
        asking, other = (replica_calls.ReplicaCalls(each.calls, keys) for each in (one, two))
        typed = []

        async def work():
            return {}

        other.serve("answer", lambda content: typed.append(content) or work)
        async with asking.open():
            asked = asyncio.create_task(asking.ask("answer", {"answer": "hunter2\0\ud800"}))
            while not (found := await two.calls.waiting()):  # noqa: ASYNC110 - a table tells nobody
                await asyncio.sleep(0.01)
            assert "hunter2" not in str(found[0].content)
            async with other.open():
                assert await asked == {}
    assert typed == [{"answer": "hunter2\0\ud800"}]


async def test_a_replica_whose_connection_broke_can_be_asked_again_soon(opening, database):
    if database.engine.dialect.name == "sqlite":
        pytest.skip("a matter of servers")
    async with opening() as other, other.calls.served():
        assert await database.calls.count_others() == 1
        broken = sqlalchemy.text(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = :name"
        )
        name = f"interpreter-bot replica {other.calls._instance.id}"
        async with database.engine.begin() as connection:
            assert (await connection.execute(broken, {"name": name})).all() == [(True,)]
        async with asyncio.timeout(5):
            while not await database.calls.count_others():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)


async def test_a_bot_ends_though_the_server_is_silent(opening, database, monkeypatch):
    if database.engine.dialect.name == "sqlite":
        pytest.skip("a matter of servers")
    monkeypatch.setattr(liveness, "_SERVE_SECONDS", 0.2)
    async with opening() as other, asyncio.timeout(5), other.calls.served():
        # As long as a statement of it waits for an answer.
        await other.calls._instance._use.acquire()
    other.calls._instance._use.release()
