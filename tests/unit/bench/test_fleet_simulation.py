"""A simulated fleet: the same from the same seed, and what it must show of the product."""

import dataclasses

import pytest

from bench import fleet_simulation, metrics
from interpreter_bot.hosts import placement_offers

SMALL = fleet_simulation.SMALL


def simulated(seed=7, **changed):
    shape = dataclasses.replace(SMALL, **changed)
    return fleet_simulation.Simulation(shape, seed=seed).run()


@pytest.fixture(scope="module")
def small():
    return simulated()


def test_a_run_can_be_repeated(small):
    assert small == simulated()
    assert small != simulated(seed=8)


def test_whoever_is_on_a_lost_machine_waits_no_longer_than_the_settings_say(small):
    found = small
    assert found.moved > 0
    assert found.lost > 0
    assert found.refused == 0
    assert max(found.waits) < SMALL.lost_seconds + 2
    assert metrics.percentile(found.waits, 0.99) < 1
    impatient = simulated(lost_seconds=5.0)
    assert max(impatient.waits) < 5 + 2


def test_without_losses_nothing_moves():
    assert simulated(deaths=0, zone_is_lost=False).moved == 0


def test_full_machines_let_idle_kernels_go():
    found = simulated(hosts=5, sessions=1200)
    assert found.evicted > 100
    assert found.restored > 100


def test_the_choice_of_two_keeps_machines_alike(monkeypatch: pytest.MonkeyPatch):
    of_two = simulated(hosts=30, sessions=1500, deaths=0, zone_is_lost=False)

    def first(offers, *, sample):
        return sample(offers, 1)[0][0]

    monkeypatch.setattr(placement_offers, "choose_host", first)
    of_one = simulated(hosts=30, sessions=1500, deaths=0, zone_is_lost=False)
    assert of_two.spread[-1] < of_one.spread[-1]
