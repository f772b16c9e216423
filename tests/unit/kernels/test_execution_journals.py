"""Journals on a real disk: several readers, bounds, a full disk, and writers that are killed."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from interpreter_bot.kernels import execution_journals, journal_databases

KIB = 1024

# A writer that is killed while it writes, and one whose files may not grow.
PRELUDE = """
import asyncio, pathlib, resource, sys
from interpreter_bot.kernels import execution_journals
directory = pathlib.Path(sys.argv[1])
"""
ENDLESS = """
async def main():
    async with execution_journals.Journals.open(directory) as journals:
        journal = journals.begin("one")
        for number in range(1, 10**9):
            journal.append(b"%d " % number * 5000)
            print(number, flush=True)
            await asyncio.sleep(0)
asyncio.run(main())
"""
FULL = """
async def main():
    bounds = execution_journals.Bounds(memory_bytes=100_000)
    async with execution_journals.Journals.open(directory, bounds) as journals:
        journal = journals.begin("one")
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, most))
        for _ in range(150):
            journal.append(bytes(20_000))
            await asyncio.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        journal.append(b"end", is_end=True)
        entries = [entry async for entry in journal.follow()]
        assert entries[-1].record == b"end" and entries[-1].number == 151
        assert sum(entry.dropped_count + 1 for entry in entries) == 151
        assert sum(entry.dropped_count for entry in entries) > 50
asyncio.run(main())
"""


DAMAGED_ON_FULL_DISK = """
async def main():
    async with execution_journals.Journals.open(directory) as journals:
        journal = journals.begin("later")
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
        journal.append(b"first")
        while not (directory / "journals.damaged").exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        journal.append(b"end", is_end=True)
        while not journal.is_written:
            await asyncio.sleep(0.01)
asyncio.run(asyncio.wait_for(main(), 20))
"""


async def _written(journal):
    async with asyncio.timeout(30):
        while not journal.is_written:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def _all(journal, after=0):
    return [entry async for entry in journal.follow(after)]


@pytest.fixture
async def journals(tmp_path):
    bounds = execution_journals.Bounds(execution_bytes=256 * KIB, total_bytes=4096 * KIB)
    async with execution_journals.Journals.open(tmp_path, bounds) as opened:
        yield opened


async def test_several_readers_get_each_event_once_and_in_order(journals):
    journal = journals.begin("one")
    readers = [asyncio.create_task(_all(journal, after)) for after in (0, 0, 3)]
    for number in range(1, 51):
        assert journal.append(b"%d" % number) == number
        if number % 7 == 0:
            await _written(journal)
    journal.append(b"end", is_end=True)
    late = asyncio.create_task(_all(journal, 50))
    for reader, after in zip([*readers, late], (0, 0, 3, 50), strict=True):
        expected = [*range(after + 1, 51), "end"]
        found = [entry.record.decode() for entry in await reader]
        assert found == [str(one) for one in expected]
        assert not any(entry.dropped_count for entry in await reader)


async def test_reader_that_is_late_reads_from_the_disk_what_memory_has_forgotten(journals):
    journal = journals.begin("one")
    for number in range(10):
        journal.append(b"%d" % number * 10 * KIB)
    journal.append(b"end", is_end=True)
    await _written(journal)
    assert len(journal._tail) == 1
    entries = await _all(journal)
    assert [entry.record[:1] for entry in entries] == [b"%d" % n for n in range(10)] + [b"e"]


async def test_long_execution_keeps_its_beginning_and_its_end_and_says_what_is_missing(journals):
    journal = journals.begin("one")
    for number in range(1, 101):
        journal.append(b"%04d" % number * 4 * KIB)
        await _written(journal)
    journal.append(b"end", is_end=True)
    await _written(journal)
    assert journal.size_bytes <= 256 * KIB
    entries = await _all(journal)
    assert sum(entry.dropped_count + 1 for entry in entries) == 101
    gaps = [entry.number for entry in entries if entry.dropped_count]
    assert len(gaps) == 1
    assert entries[0].number == 1
    assert [entry.number for entry in entries[:7]] == list(range(1, 8))
    assert [entry.number for entry in entries[-7:]] == list(range(95, 102))
    assert [one.number for one in await _all(journal, after=50)] == [
        entry.number for entry in entries if entry.number > 50
    ]


async def test_flood_of_executions_makes_room_by_those_that_ended_first(journals, tmp_path):
    running = journals.begin("running")
    running.append(bytes(KIB))
    for number in range(40):
        journal = journals.begin(f"e{number}")
        journal.append(bytes(200 * KIB))
        journal.append(b"end", is_end=True)
        await _written(journal)
    await journals.sweep()
    kept = [journal.id for journal in journals]
    assert kept[0] == "running"
    assert kept[1:] == [f"e{number}" for number in range(40 - len(kept) + 1, 40)]
    assert len(kept) > 15


@pytest.mark.parametrize("id", ["", "../up", "a/b", "a.b", "x" * 65, "new\nline"])
async def test_id_that_is_no_file_name_is_refused(journals, id):
    with pytest.raises(ValueError, match="id"):
        journals.begin(id)


async def test_id_begins_once(journals):
    journals.begin("one")
    with pytest.raises(ValueError, match="id"):
        journals.begin("one")


def rows(directory, query):
    with contextlib.closing(sqlite3.connect(directory / "journals.sqlite")) as database:
        return database.execute(query).fetchall()


STORED = "SELECT DISTINCT execution FROM events"


async def test_execution_that_is_acknowledged_at_once_is_not_written(journals, tmp_path):
    journals.begin("quick").append(b"end", is_end=True)
    await asyncio.sleep(0.01)
    journals.remove("quick")
    slow = journals.begin("slow")
    slow.append(b"end", is_end=True)
    await _written(slow)
    assert rows(tmp_path, STORED) == [("slow",)]


async def test_next_host_takes_over_the_journals_of_a_dead_one(tmp_path):
    async with execution_journals.Journals.open(tmp_path) as before:
        ended, running = before.begin("ended"), before.begin("running")
        for journal in (ended, running):
            journal.append(b"first")
        ended.append(b"end", is_end=True)
        async with execution_journals.Journals.open(tmp_path) as journals:
            assert not await journals.take_over(), "that host lives"
            assert list(journals) == []
    async with execution_journals.Journals.open(tmp_path) as journals:
        assert await journals.take_over()
        assert {one.id: one.began_at for one in journals} == {
            one.id: one.began_at for one in (ended, running)
        }
        assert [one.record for one in await _all(journals.find("ended"))] == [b"first", b"end"]
        left = journals.find("running")
        assert left.ended_at is None
        left.append(b"it died", is_end=True)
        assert [one.record for one in await _all(left)] == [b"first", b"it died"]
    async with execution_journals.Journals.open(tmp_path) as journals:
        await journals.take_over()
        assert [one.record for one in await _all(journals.find("running"), after=1)] == [b"it died"]
    assert sorted(os.listdir(tmp_path))[1:] == ["journals.sqlite"], "one lock file, of the last"


@pytest.fixture
def killed(tmp_path):
    """The directory of a writer that was killed in the middle of it."""
    (tmp_path / "journals.sqlite").touch()
    writer = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + ENDLESS, str(tmp_path)], stdout=subprocess.PIPE
    )
    written = 0
    while written < 20:
        with contextlib.suppress(sqlite3.OperationalError):  # There are no tables yet.
            ((written,),) = rows(tmp_path, "SELECT count(*) FROM events")
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    return tmp_path


async def test_killed_writer_leaves_all_that_was_written(killed):
    async with execution_journals.Journals.open(killed) as journals:
        await journals.take_over()
        journal = journals.find("one")
        journal.append(b"end", is_end=True)
        entries = await _all(journal)
    assert len(entries) > 10
    for number, entry in enumerate(entries[:-1], 1):
        assert entry.record == b"%d " % number * 5000


async def test_damaged_database_is_set_aside(tmp_path):
    (tmp_path / "journals.sqlite").write_bytes(os.urandom(10_000))
    async with execution_journals.Journals.open(tmp_path) as journals:
        journal = journals.begin("one")
        journal.append(b"end", is_end=True)
        await _written(journal)
    assert (tmp_path / "journals.damaged").stat().st_size == 10_000
    assert rows(tmp_path, STORED) == [("one",)]


async def test_lost_rows_are_told_and_end_no_reader(journals, tmp_path):
    journal = journals.begin("one")
    journal.append(b"first" * KIB)
    journal.append(b"end", is_end=True)
    await _written(journal)
    with contextlib.closing(sqlite3.connect(tmp_path / "journals.sqlite")) as database, database:
        database.execute("DELETE FROM events")
    assert [(one.number, one.dropped_count) for one in await _all(journal)] == [(2, 1)]


def test_directory_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "journals.sqlite").mkdir()
    with pytest.raises(OSError, match="journals"):
        journal_databases.JournalDatabase(tmp_path)


def test_full_disk_costs_no_more_than_what_memory_does_not_hold(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + FULL, str(tmp_path)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    # What was written after the disk had room again is there for the next process.
    assert rows(tmp_path, "SELECT count(*) FROM executions WHERE ended_at > 0") == [(1,)]


@contextlib.contextmanager
def locked(directory):
    """Another process writes and does not end."""
    with contextlib.closing(sqlite3.connect(directory / "journals.sqlite")) as database:
        database.execute("BEGIN IMMEDIATE")
        yield


async def test_journals_that_wait_for_the_disk_share_the_memory_of_all(tmp_path):
    bounds = execution_journals.Bounds(memory_bytes=400 * KIB)
    opening = execution_journals.Journals.open(tmp_path, bounds, busy_seconds=0.01)
    async with opening as journals:
        with locked(tmp_path):
            small = journals.begin("small")
            for _ in range(30):
                small.append(bytes(KIB))
            large = [journals.begin(f"e{number}") for number in range(10)]
            for _ in range(50):
                for journal in large:
                    journal.append(bytes(10 * KIB))
                await asyncio.sleep(0.001)
            running = journals.begin("running")
            running.append(bytes(2048 * KIB))
            for journal in (small, *large):
                journal.append(b"end", is_end=True)
            everything = [await _all(journal) for journal in (small, *large)]
        assert not any(entry.dropped_count for entry in everything[0]), (
            "it took less than its share"
        )
        for entries in everything:
            assert entries[-1].record == b"end"
        sizes = [len(entry.record) for entries in everything for entry in entries]
        assert 200 * KIB < sum(sizes) < 450 * KIB
        assert running.memory_bytes == 0
        running.append(b"end", is_end=True)
        assert [(entry.record, entry.dropped_count) for entry in await _all(running)] == [
            (b"end", 1)
        ]
        await _written(running)


async def test_database_that_is_busy_for_long_loses_nothing(tmp_path):
    async with execution_journals.Journals.open(tmp_path, busy_seconds=0.01) as journals:
        journal = journals.begin("one")
        with locked(tmp_path):
            for _ in range(20):
                journal.append(bytes(512 * KIB))
                await asyncio.sleep(0.01)
        journal.append(b"end", is_end=True)
        entries = await _all(journal)
        await _written(journal)
    assert [entry.number for entry in entries] == list(range(1, 22))


def test_database_that_is_busy_at_the_start_is_told(tmp_path):
    first = journal_databases.JournalDatabase(tmp_path)
    with locked(tmp_path), pytest.raises(OSError, match="locked"):
        journal_databases.JournalDatabase(tmp_path, busy_seconds=0.01)
    first.close()


class FailingThreads(concurrent.futures.ThreadPoolExecutor):
    """Threads on a machine that has too many of them for a moment."""

    failures = 2

    def submit(self, *arguments, **keywords):
        if self.failures:
            self.failures -= 1
            raise RuntimeError("can't start new thread")
        return super().submit(*arguments, **keywords)


async def test_write_that_fails_for_another_reason_than_the_disk_is_tried_again(journals):
    journal = journals.begin("one")
    asyncio.get_running_loop().set_default_executor(FailingThreads())
    journal.append(b"end", is_end=True)
    await _written(journal)


async def test_event_that_is_there_already_does_not_stop_later_writes(journals, tmp_path):
    journal = journals.begin("one")
    with contextlib.closing(sqlite3.connect(tmp_path / "journals.sqlite")) as database, database:
        database.execute("INSERT INTO events VALUES ('one', 1, 'of a write that seemed to fail')")
    journal.append(b"first")
    other = journals.begin("other")
    for one in (journal, other):
        one.append(b"end", is_end=True)
        await _written(one)
    assert [one.record for one in await _all(journal)] == [b"first", b"end"]


async def test_execution_of_an_id_that_runs_here_does_not_lose_the_others(journals, tmp_path):
    here = journals.begin("a")
    with contextlib.closing(sqlite3.connect(tmp_path / "journals.sqlite")) as database, database:
        for id in "ab":
            database.execute("INSERT INTO executions VALUES (?, 'dead', 0, 0, NULL)", (id,))
            database.execute("INSERT INTO events VALUES (?, 1, ?)", (id, b"of the dead host"))
    assert await journals.take_over()
    assert journals.find("a") is here
    left = journals.find("b")
    for journal in (here, left):
        journal.append(b"end", is_end=True)
        await _written(journal)
    assert [one.record for one in await _all(here)] == [b"end"]
    assert [one.record for one in await _all(left)] == [b"of the dead host", b"end"]


async def test_file_shrinks_by_some_pages_at_a_time(tmp_path):
    def free_pages():
        ((count,),) = rows(tmp_path, "PRAGMA freelist_count")
        return count

    async with execution_journals.Journals.open(tmp_path) as journals:
        journal = journals.begin("one")
        for _ in range(3):
            journal.append(bytes(8192 * KIB))
        journal.append(b"end", is_end=True)
        await _written(journal)
        journals.remove("one")
        async with asyncio.timeout(30):
            while rows(tmp_path, STORED):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        before = free_pages()
        assert before * 4096 > 24 * 1024 * KIB, "the deletion moved pages, too"
        await journals.sweep()
        assert before - free_pages() == 4096
        await journals.sweep()
        assert free_pages() == 0


async def test_removed_and_old_journals_leave_nothing(tmp_path):
    bounds = execution_journals.Bounds(keep_seconds=0.5)
    async with execution_journals.Journals.open(tmp_path, bounds) as journals:
        removed = journals.begin("removed")
        removed.append(b"end", is_end=True)
        await _written(removed)
        journals.remove("removed")
        assert journals.find("removed") is None
        old = journals.begin("old")
        old.append(b"end", is_end=True)
        await _written(old)
        await asyncio.sleep(0.6)
        await journals.sweep()
        assert journals.find("old") is None
    assert rows(tmp_path, STORED) == []
    assert rows(tmp_path, "SELECT * FROM executions") == []


async def test_journals_in_memory_keep_the_newest_output_and_executions():
    bounds = execution_journals.Bounds(max_journals=3, memory_bytes=100 * KIB)
    journals = execution_journals.Journals(bounds)
    for number in range(5):
        journal = journals.begin(f"e{number}")
        for _ in range(20):
            journal.append(bytes(10 * KIB))
        journal.append(b"end", is_end=True)
    assert [journal.id for journal in journals] == ["e2", "e3", "e4"]
    size_bytes = 0
    for journal in journals:
        entries = await _all(journal)
        assert entries[-1].record == b"end"
        assert sum(entry.dropped_count + 1 for entry in entries) == 21
        size_bytes += sum(len(entry.record) for entry in entries)
    assert 80 * KIB < size_bytes < 120 * KIB


async def test_a_take_over_that_is_cancelled_is_finished(tmp_path):
    async with execution_journals.Journals.open(tmp_path) as before:
        before.begin("left").append(b"first")
    async with execution_journals.Journals.open(tmp_path) as journals:
        taking = asyncio.create_task(journals.take_over())
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert journals.find("left").last_number == 1


@pytest.fixture
async def damaged(tmp_path):
    """The directory of a database that can be opened, and not written."""
    async with execution_journals.Journals.open(tmp_path) as journals:
        for number in range(50):
            journals.begin(f"e{number}").append(bytes(20 * KIB))
        await _written(journals.find("e49"))
    size = (tmp_path / "journals.sqlite").stat().st_size
    with (tmp_path / "journals.sqlite").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    return tmp_path


async def test_a_database_that_is_damaged_while_it_is_used_is_replaced(damaged):
    async with execution_journals.Journals.open(damaged) as journals:
        later = journals.begin("later")
        later.append(b"end", is_end=True)
        await _written(later)
    assert rows(damaged, STORED) == [("later",)]
    assert (damaged / "journals.damaged").exists()


def test_damaged_database_is_replaced_once_the_full_disk_has_room(damaged):
    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + DAMAGED_ON_FULL_DISK, str(damaged)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert rows(damaged, "SELECT record FROM events") == [(b"first",), (b"end",)]


async def test_a_reader_of_each_new_event_does_not_copy_all_earlier_ones():
    journal, count = execution_journals.Journals().begin("flood"), 80_000

    async def append():
        for number in range(count):
            journal.append(b"text", is_end=number == count - 1)
            await asyncio.sleep(0)

    started = time.thread_time()
    appending = asyncio.create_task(append())
    assert [entry.number async for entry in journal.follow()] == list(range(1, count + 1))
    await appending
    # In linear time, 0.7 s; in quadratic time, 9 s.
    assert time.thread_time() - started < 4
