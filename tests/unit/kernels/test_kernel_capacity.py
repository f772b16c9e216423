"""Whose kernel goes first, and what each weighs."""

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels import kernel_capacity, watchdog_loop

_MIB = 1 << 20


class Kernel:
    """What is looked at of a kernel, which is its own provisioner and meter."""

    def __init__(self, person, last_used, *, busy=False, megabytes=0, alive=True):
        self.person = person
        self.is_alive, self.is_busy, self.last_used = alive, busy, last_used
        self.is_frozen = False
        self.provisioner = self
        self.weight = 1.0
        self.set = []
        self._bytes = megabytes * _MIB

    def meter(self):
        return self

    def counted_bytes(self):
        return self._bytes

    def set_weight(self, weight):
        self.set.append(weight)


def test_ones_own_longest_idle_kernel_goes_before_anybody_elses():
    live = {
        "a old": Kernel("a", 2),
        "a older, held": Kernel("a", 1),
        "b": Kernel("b", 0, megabytes=900),
    }
    assert kernel_capacity.choose_session_to_evict("a", live, {"a older, held"}) == "a old"


def test_whoever_takes_most_room_makes_it_for_who_has_none():
    live = {
        "a": Kernel("a", 1, megabytes=90),
        "b": Kernel("b", 9),
        "b new": Kernel("b", 10),
        "b busy": Kernel("b", 0, busy=True),
        "c dead": Kernel("c", 0, alive=False, megabytes=900),
    }
    assert kernel_capacity.choose_session_to_evict("d", live, set()) == "b"
    live["a"] = Kernel("a", 1, megabytes=900)
    assert kernel_capacity.choose_session_to_evict("d", live, set()) == "a"


def test_nobody_loses_variables_to_somebody_who_has_more_kernels():
    live = {"a": Kernel("a", 1), **{f"b{n}": Kernel("b", 0, busy=True) for n in range(2)}}
    with pytest.raises(errors.PoolFullError):
        kernel_capacity.choose_session_to_evict("b", live, set())
    assert kernel_capacity.choose_session_to_evict("c", live, set()) == "a"


def test_so_many_kernels_are_one_persons_and_then_their_own_makes_room():
    live = {"a1": Kernel("a", 1), "a2": Kernel("a", 0), "b": Kernel("b", -1)}

    def session_to_evict(*, starting=0, max_kernels=3, leased=()):
        return kernel_capacity.choose_own_session_to_evict(
            "a", live, starting_count=starting, max_kernels=max_kernels, leased_sessions=set(leased)
        )

    assert session_to_evict() is None
    assert session_to_evict(starting=1) == "a2"
    assert session_to_evict(max_kernels=2, leased=["a2"]) == "a1"
    assert session_to_evict(starting=9, max_kernels=0) is None
    with pytest.raises(errors.PoolFullError, match=r"in 2 of .* one person"):
        session_to_evict(max_kernels=2, leased=["a1", "a2"])


def test_all_busy_sessions_of_a_person_weigh_as_much_as_one_of_another():
    live = [Kernel("a", 0, busy=True) for _ in range(4)]
    live += [Kernel("b", 0, busy=True), Kernel("c", 0), Kernel("c", 0)]
    watchdog_loop.share_among_people(live)
    assert [one.weight for one in live] == [0.25] * 4 + [1.0, 0.5, 0.5]
    live[0].is_busy = live[1].is_busy = False
    watchdog_loop.share_among_people(live)
    watchdog_loop.share_among_people(live)
    assert [one.set for one in live] == [[0.25]] * 2 + [[0.25, 0.5]] * 2 + [[], [0.5], [0.5]]
