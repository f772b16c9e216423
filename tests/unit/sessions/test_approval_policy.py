"""The strictest approval that anybody chose holds."""

import itertools
from typing import get_args

import pytest

from interpreter_bot.sessions import approval_policy, requests


@pytest.mark.parametrize("pair", list(itertools.product(get_args(requests.Approval), repeat=2)))
def test_nobody_weakens_what_another_wants(pair):
    strict = ["never", "plan", "every"]
    assert strict.index(approval_policy.strictest_approval(*pair)) == max(map(strict.index, pair))


@pytest.mark.parametrize("chosen", [(), (None,), ("always", 3, ["every"], {"every": 1})])
def test_what_is_no_choice_asks_for_nothing(chosen):
    assert approval_policy.strictest_approval(*chosen) == "never"
    assert approval_policy.strictest_approval("plan", *chosen) == "plan"
