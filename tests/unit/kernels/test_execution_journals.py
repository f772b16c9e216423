"""Journals on a real disk: several readers, bounds, a full disk, and writers that are killed."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from interpreter_bot.kernels import execution_journals, journal_files

KIB = 1024
ABOUT = b"a session"

# A writer that is killed while it writes, and one whose files may not grow.
PRELUDE = """
import asyncio, pathlib, resource, sys
from interpreter_bot.kernels import execution_journals
directory = pathlib.Path(sys.argv[1])
"""
ENDLESS = """
async def main():
    async with execution_journals.Journals.open(directory) as journals:
        journal = journals.begin("one", b"a session")
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
        journal = journals.begin("one", b"a session")
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, most))
        for _ in range(150):
            journal.append(bytes(20_000))
            await asyncio.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        journal.append(b"end", is_end=True)
        entries = [entry async for entry in journal.follow()]
        assert entries[-1].record == b"end" and entries[-1].number == 151
        assert sum(entry.left_out + 1 for entry in entries) == 151
        assert sum(entry.left_out for entry in entries) > 50
asyncio.run(main())
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


async def test_what_is_over_and_acknowledged_at_once_makes_no_file(journals, tmp_path, monkeypatch):
    made = []
    writer = journal_files.Writer

    def make(path, *arguments):
        made.append(path.name.partition(".")[0])
        return writer(path, *arguments)

    monkeypatch.setattr(journal_files, "Writer", make)
    journals.begin("quick", ABOUT).append(b"end", is_end=True)
    await asyncio.sleep(0.01)
    await journals.remove("quick")
    slow = journals.begin("slow", ABOUT)
    slow.append(b"end", is_end=True)
    await _written(slow)
    assert made == ["slow"]


async def test_several_readers_get_each_event_once_and_in_order(journals):
    journal = journals.begin("one", ABOUT)
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
        assert not any(entry.left_out for entry in await reader)


async def test_reader_that_is_late_reads_from_the_disk_what_memory_has_forgotten(journals):
    journal = journals.begin("one", ABOUT)
    for number in range(10):
        journal.append(b"%d" % number * 10 * KIB)
    journal.append(b"end", is_end=True)
    await _written(journal)
    assert len(journal._tail) == 1
    entries = await _all(journal)
    assert [entry.record[:1] for entry in entries] == [b"%d" % n for n in range(10)] + [b"e"]


async def test_long_execution_keeps_its_beginning_and_its_end_and_says_what_is_missing(journals):
    journal = journals.begin("one", ABOUT)
    for number in range(1, 101):
        journal.append(b"%04d" % number * 4 * KIB)
        await _written(journal)
    journal.append(b"end", is_end=True)
    await _written(journal)
    assert journal.size_bytes <= 256 * KIB
    entries = await _all(journal)
    assert sum(entry.left_out + 1 for entry in entries) == 101
    gaps = [entry.number for entry in entries if entry.left_out]
    assert len(gaps) == 1
    assert entries[0].number == 1
    assert [entry.number for entry in entries[:8]] == list(range(1, 9))
    assert [entry.number for entry in entries[-7:]] == list(range(95, 102))
    assert [one.number for one in await _all(journal, after=50)] == [
        entry.number for entry in entries if entry.number > 50
    ]


async def test_next_process_takes_over_what_was_left(tmp_path):
    async with execution_journals.Journals.open(tmp_path) as before:
        ended, running = before.begin("ended", ABOUT), before.begin("running", b"another")
        for journal in (ended, running):
            journal.append(b"first")
        ended.append(b"end", is_end=True)
    async with execution_journals.Journals.open(tmp_path) as journals:
        assert {one.id: one.about for one in journals} == {"ended": ABOUT, "running": b"another"}
        assert [one.record for one in await _all(journals.find("ended"))] == [b"first", b"end"]
        left = journals.find("running")
        assert left.ended_at is None
        left.append(b"it died", is_end=True)
        assert [one.record for one in await _all(left)] == [b"first", b"it died"]
    async with execution_journals.Journals.open(tmp_path) as journals:
        assert [one.record for one in await _all(journals.find("running"), after=1)] == [b"it died"]


@pytest.fixture
def killed(tmp_path):
    """The directory of a writer that was killed in the middle of it."""
    writer = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + ENDLESS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    while not any(path.stat().st_size > 500_000 for path in tmp_path.iterdir()):
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    return tmp_path


async def test_killed_writer_leaves_all_that_was_whole(killed):
    async with execution_journals.Journals.open(killed) as journals:
        journal = journals.find("one")
        journal.append(b"end", is_end=True)
        entries = await _all(journal)
    assert len(entries) > 15
    for number, entry in enumerate(entries[:-1], 1):
        assert entry.record == b"%d " % number * 5000


async def test_record_torn_at_any_byte_costs_itself_alone(tmp_path):
    async with execution_journals.Journals.open(tmp_path / "whole") as journals:
        journal = journals.begin("one", ABOUT)
        journal.append(b"first")
        journal.append(b"second", is_end=True)
    (path,) = (tmp_path / "whole").iterdir()
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        segment = journal_files.recovered(path)
        whole = (size == len(data)) + (size >= len(data) - 14)
        assert (segment.next - 1 if segment else 0) == whole
        assert segment is None or segment.has_end == (whole == 2)
    # A power cut may leave zeros where the last writes were.
    path.write_bytes(data[:-14] + bytes(14))
    assert journal_files.recovered(path).next == 2


async def test_damage_since_is_told_and_ends_nobody(journals, tmp_path):
    journal = journals.begin("one", ABOUT)
    journal.append(b"first" * KIB)
    journal.append(b"end", is_end=True)
    await _written(journal)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    assert [(one.number, one.left_out) for one in await _all(journal)] == [(2, 1)]


def test_full_disk_costs_no_more_than_what_memory_does_not_hold(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + FULL, str(tmp_path)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    # What was written after the disk had room again is there for the next process.
    segments = [journal_files.recovered(path) for path in tmp_path.iterdir()]
    assert any(one is not None and one.has_end for one in segments)


async def test_flood_of_executions_makes_room_by_those_that_ended_first(journals, tmp_path):
    running = journals.begin("running", ABOUT)
    running.append(bytes(KIB))
    for number in range(40):
        journal = journals.begin(f"e{number}", ABOUT)
        journal.append(bytes(200 * KIB))
        journal.append(b"end", is_end=True)
        await _written(journal)
    await journals.sweep()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4096 * KIB
    kept = [journal.id for journal in journals]
    assert kept[0] == "running"
    assert kept[1:] == [f"e{number}" for number in range(40 - len(kept) + 1, 40)]
    assert len(kept) > 15


async def test_removed_and_old_journals_leave_nothing(tmp_path):
    bounds = execution_journals.Bounds(keep_seconds=0.05, executions=3)
    async with execution_journals.Journals.open(tmp_path, bounds) as journals:
        removed = journals.begin("removed", ABOUT)
        removed.append(b"end", is_end=True)
        await journals.remove("removed")
        assert journals.find("removed") is None
        old = journals.begin("old", ABOUT)
        old.append(b"end", is_end=True)
        await _written(old)
        await asyncio.sleep(0.06)
        await journals.sweep()
        assert journals.find("old") is None
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("id", ["", "../up", "a/b", "a.b", "x" * 65, "new\nline"])
async def test_id_that_is_no_file_name_is_refused(journals, id):
    with pytest.raises(ValueError, match="id"):
        journals.begin(id, ABOUT)


async def test_id_begins_once(journals):
    journals.begin("one", ABOUT)
    with pytest.raises(ValueError, match="id"):
        journals.begin("one", ABOUT)


async def test_what_is_no_journal_is_removed_at_the_start(tmp_path):
    (tmp_path / "one.1.journal").write_bytes(b"journal1 but then nothing of the kind")
    (tmp_path / "two.1.journal").write_bytes(os.urandom(1000))
    (tmp_path / "ours.txt").write_text("stays")
    async with execution_journals.Journals.open(tmp_path) as journals:
        assert list(journals) == []
    assert os.listdir(tmp_path) == ["ours.txt"]


async def test_what_a_file_did_not_take_by_its_closing_is_written_again(tmp_path, monkeypatch):
    close, failures = os.close, [OSError(errno.EIO, "closing says that it was not written")]

    def refuse(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        close(descriptor)
        if path.endswith(".journal") and failures:
            os.truncate(path, 0)
            raise failures.pop()

    monkeypatch.setattr(execution_journals, "_RETRY_SECONDS", 0.01)
    async with execution_journals.Journals.open(tmp_path) as journals:
        journal = journals.begin("one", ABOUT)
        with monkeypatch.context() as patch:
            patch.setattr(os, "close", refuse)
            journal.append(b"end", is_end=True)
            await _written(journal)
        assert not failures
        assert [entry.record for entry in await _all(journal)] == [b"end"]
    async with execution_journals.Journals.open(tmp_path) as journals:
        assert [entry.record for entry in await _all(journals.find("one"))] == [b"end"]


async def test_a_journal_that_cannot_be_closed_keeps_no_other_open(tmp_path, monkeypatch):
    close, closed = journal_files.Writer.close, []

    def refuse(writer):
        close(writer)
        closed.append(writer.segment.path.name)
        if writer.segment.path.name.startswith("one."):
            raise OSError

    monkeypatch.setattr(journal_files.Writer, "close", refuse)
    async with execution_journals.Journals.open(tmp_path) as journals:
        for id in ("one", "two"):
            journals.begin(id, ABOUT).append(b"first")
    assert closed == ["one.1.journal", "two.1.journal"]
