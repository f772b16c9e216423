"""Where a session goes: to its files, else to the roomier of two; and who is asked for that."""

import collections
import random

from interpreter_bot.hosts import placement_offers

Offer = placement_offers.Offer


def test_few_hosts_are_all_asked_and_many_are_sampled():
    few, many = range(16), range(10_000)
    assert list(placement_offers.sample_hosts(few)) == list(few)
    asked = placement_offers.sample_hosts(many)
    assert len(set(asked)) == 4
    assert set(asked) <= set(many)


def test_files_decide_and_then_free_memory_of_two_random_hosts():
    assert placement_offers.choose_host([]) is None
    assert placement_offers.choose_host([("one", Offer(has_files=False, free_bytes=0))]) == "one"
    full = ("full", Offer(has_files=True, free_bytes=0))
    roomy = ("roomy", Offer(has_files=False, free_bytes=9))
    assert placement_offers.choose_host([roomy, full]) == "full"
    offers = [(number, Offer(has_files=False, free_bytes=number)) for number in range(4)]
    draw = random.Random(1).sample
    chosen = collections.Counter(
        placement_offers.choose_host(offers, sample=draw) for _ in range(600)
    )
    # The roomiest wins whenever it is drawn: half the time. The fullest never does.
    assert chosen[3] > chosen[2] > chosen[1] > 0 == chosen[0]
