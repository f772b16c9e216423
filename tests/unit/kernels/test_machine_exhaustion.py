"""Who ends when the machine's memory runs out: sessions that are played, and what is read."""

import pathlib
import types

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import machine_exhaustion
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.kernels.provisioning import cgroups
from interpreter_bot.wording import run_words

MIB = settings.MIB
LoadSample = session_metering.LoadSample
HELD, WORKED, LITTLE = LoadSample(300 * MIB, 0.1), LoadSample(-MIB, 1.5), LoadSample(5 * MIB, 0.4)
# What is gone, what of it the kernel holds, what sessions did meanwhile: who is to blame.
CASES = {
    "who holds most of it": (400, 0, {"a": HELD, "b": WORKED, "c": LITTLE}, "a"),
    "who holds most of what many hold": (
        *(500, 0),
        {
            "a": LoadSample(99 * MIB, 9),
            "b": LoadSample(101 * MIB, 0),
            "c": LoadSample(100 * MIB, 0),
        },
        "b",
    ),
    "who made the kernel hold it": (400, 350, {"b": WORKED, "c": LITTLE}, "b"),
    "nobody, as another program has it": (400, 20, {"b": WORKED, "c": LITTLE}, None),
    "nobody, as it is next to nothing": (10, 10, {"b": WORKED, "c": LITTLE}, None),
    "nobody, as nobody did anything": (400, 400, {"d": LoadSample(0, 0.0)}, None),
    "nobody, as nobody is there": (400, 400, {}, None),
}


@pytest.mark.parametrize("who", CASES)
def test_the_one_to_blame_is(who):
    taken, by_kernel, strains, expected = CASES[who]
    assert machine_exhaustion.find_culprit(taken * MIB, by_kernel * MIB, strains) == expected


class Session:
    """A monitor with its kernel and what measures it, all in one."""

    def __init__(self, *, is_active=True):
        self.meter = self.kernel = self
        self.id, self.is_active = "kernel", is_active
        self.held, self.system_seconds, self.measured = 0, 0.0, 0
        self.ended = []

    def memory_bytes(self):
        return self.held * MIB

    def sample_load(self):
        self.measured += 1
        return LoadSample(self.held * MIB, self.system_seconds)

    def kill_with_reason(self, ending, reason):
        self.ended.append((ending, reason))


ENDED = [(values.Ending.OUT_OF_MEMORY, run_words.MEMORY_SHORT)]


@pytest.fixture
def machine(monkeypatch):
    """The machine's memory, in MiB: 1,000 are free, and the reserve is 100."""
    now = types.SimpleNamespace(free=1000, kernel=100)
    monkeypatch.setattr(
        machine_exhaustion,
        "machine_memory",
        lambda: machine_exhaustion.MachineMemory(now.free * MIB, now.kernel * MIB),
    )
    monkeypatch.setattr(cgroups, "memory_groups", list)
    now.reserve = machine_exhaustion.MemoryGuard(settings.Limits(memory_reserve_bytes=100 * MIB))
    return now


async def test_while_there_is_plenty_nobody_is_measured(machine):
    session = Session()
    for machine.free in (1000, 500, 201):
        await machine.reserve.end_culprit([session])
    assert session.measured == 0


async def test_below_the_reserve_the_one_that_grew_ends_and_no_other(machine):
    growing, calm, idle = Session(), Session(), Session(is_active=False)
    idle.held = calm.held = 400
    for machine.free in (199, 150, 101):
        await machine.reserve.end_culprit([calm, idle, growing])
        growing.held += 45
        calm.system_seconds += 0.5
    assert not growing.ended
    machine.free = 90
    await machine.reserve.end_culprit([calm, idle, growing])
    assert (growing.ended, calm.ended, idle.ended, idle.measured) == (ENDED, [], [], 0)


async def test_who_has_long_held_more_than_a_session_may_ends_before_the_one_that_grew(machine):
    growing, hoarding = Session(), Session(is_active=False)
    hoarding.held = 5000
    for machine.free in (199, 150, 90):
        growing.held += 45
        await machine.reserve.end_culprit([hoarding, growing])
    assert (hoarding.ended, growing.ended) == (ENDED, [])


async def test_what_nobody_is_seen_to_hold_is_of_who_kept_the_kernel_busy(machine):
    locking, calm = Session(), Session()
    for machine.free, machine.kernel in ((199, 100), (150, 150), (90, 205)):
        locking.system_seconds += 0.25
        calm.held += 3
        await machine.reserve.end_culprit([calm, locking])
    assert (locking.ended, calm.ended) == (ENDED, [])


async def test_after_an_end_it_is_seen_first_what_that_brought(machine):
    first, second = Session(), Session()
    for machine.free in (199, 99):
        first.held += 200
        await machine.reserve.end_culprit([first, second])
    assert first.ended == ENDED
    for machine.free in (98, 97, 120):
        second.held += 40
        await machine.reserve.end_culprit([second])
    assert not second.ended


async def test_a_machine_that_is_always_short_ends_nobody_for_little(machine):
    session = Session()
    for machine.free in (50, 45, 51, 40):
        session.held += 5
        session.system_seconds += 1
        await machine.reserve.end_culprit([session])
    assert not session.ended


async def test_the_room_in_a_group_counts_too(machine, monkeypatch):
    group = types.SimpleNamespace(limit_bytes=160 * MIB, free_bytes=lambda: 5 * MIB)
    monkeypatch.setattr(cgroups, "memory_groups", lambda: [group])
    reserve = machine_exhaustion.MemoryGuard(settings.Limits(memory_reserve_bytes=100 * MIB))
    growing = Session()
    for machine.free in (1000, 940):
        growing.held += 60
        await reserve.end_culprit([growing])
    assert growing.ended == ENDED


VERSIONS = {
    1: {"memory.usage_in_bytes": "70", "memory.stat": "hierarchical_memory_limit 100\n"},
    2: {"memory.current": "70", "memory.max": "100", "memory.stat": ""},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_room_in_a_group_is_read(tmp_path, version):
    cache = {1: "total_inactive_file 20", 2: "inactive_file 20"}[version]
    for name, text in VERSIONS[version].items():
        (tmp_path / name).write_text(text + (cache if name == "memory.stat" else ""))
    assert cgroups.MemoryGroup(tmp_path, 100).free_bytes() == 50
    assert cgroups.MemoryGroup(tmp_path / "gone", 100).free_bytes() == 100


def test_the_machine_is_read():
    machine = machine_exhaustion.machine_memory()
    assert machine.free_bytes > 0
    assert 0 < machine.linux_kernel_bytes < 64 * settings.GIB


@pytest.mark.parametrize(("limit", "left"), [(600, 600), (2000, 1000)])
def test_what_is_left_is_that_of_the_container_where_it_has_less(machine, limit, left, monkeypatch):
    group = cgroups.MemoryGroup(pathlib.Path("/nowhere"), limit * MIB)
    monkeypatch.setattr(cgroups, "memory_groups", lambda: [group])
    assert machine_exhaustion.free_bytes() == left * MIB
