"""Whose kernel goes first, and what each weighs."""

import types

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels import kernel_capacity, watchdog_loop

_MIB = 1 << 20


class Launched:
    """What is looked at of a launched kernel, which is its own provisioner and usage."""

    def __init__(self, person, last_used, *, busy=False, megabytes=0, alive=True):
        self.person = person
        self.kernel = types.SimpleNamespace(
            is_alive=alive, is_busy=busy, last_used=last_used, is_frozen=False
        )
        self.provisioner = self
        self.weight = 1.0
        self.set = []
        self._bytes = megabytes * _MIB

    def usage(self):
        return self

    def counted_bytes(self):
        return self._bytes

    def set_weight(self, weight):
        self.set.append(weight)


def test_ones_own_longest_idle_kernel_goes_before_anybody_elses():
    live = {
        "a old": Launched("a", 2),
        "a older, held": Launched("a", 1),
        "b": Launched("b", 0, megabytes=900),
    }
    assert kernel_capacity.find_to_evict("a", live, {"a older, held"}) == "a old"


def test_whoever_takes_most_room_makes_it_for_who_has_none():
    live = {
        "a": Launched("a", 1, megabytes=90),
        "b": Launched("b", 9),
        "b new": Launched("b", 10),
        "b busy": Launched("b", 0, busy=True),
        "c dead": Launched("c", 0, alive=False, megabytes=900),
    }
    assert kernel_capacity.find_to_evict("d", live, set()) == "b"
    live["a"] = Launched("a", 1, megabytes=900)
    assert kernel_capacity.find_to_evict("d", live, set()) == "a"


def test_nobody_loses_variables_to_somebody_who_has_more_kernels():
    live = {"a": Launched("a", 1), **{f"b{n}": Launched("b", 0, busy=True) for n in range(2)}}
    with pytest.raises(errors.PoolFullError):
        kernel_capacity.find_to_evict("b", live, set())
    assert kernel_capacity.find_to_evict("c", live, set()) == "a"


def test_so_many_kernels_are_one_persons_and_then_their_own_makes_room():
    live = {"a1": Launched("a", 1), "a2": Launched("a", 0), "b": Launched("b", -1)}

    def session_to_evict(*, starting=0, max_kernels=3, leased=()):
        return kernel_capacity.find_own_to_evict(
            "a", live, starting=starting, max_kernels=max_kernels, leased=set(leased)
        )

    assert session_to_evict() is None
    assert session_to_evict(starting=1) == "a2"
    assert session_to_evict(max_kernels=2, leased=["a2"]) == "a1"
    assert session_to_evict(starting=9, max_kernels=0) is None
    with pytest.raises(errors.PoolFullError, match=r"in 2 of .* one person"):
        session_to_evict(max_kernels=2, leased=["a1", "a2"])


def test_all_busy_sessions_of_a_person_weigh_as_much_as_one_of_another():
    live = [Launched("a", 0, busy=True) for _ in range(4)]
    live += [Launched("b", 0, busy=True), Launched("c", 0), Launched("c", 0)]
    watchdog_loop.share_among_people(live)
    assert [one.weight for one in live] == [0.25] * 4 + [1.0, 0.5, 0.5]
    live[0].kernel.is_busy = live[1].kernel.is_busy = False
    watchdog_loop.share_among_people(live)
    watchdog_loop.share_among_people(live)
    assert [one.set for one in live] == [[0.25]] * 2 + [[0.25, 0.5]] * 2 + [[], [0.5], [0.5]]
