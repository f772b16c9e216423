"""Whose choices hold in a place: people's or the operator's."""

import itertools
from typing import get_args

import pytest

from interpreter_bot import settings, values
from interpreter_bot.sessions import approval_policy, places, requests
from interpreter_bot.store import databases

LEVELS = get_args(requests.Approval)
"""The mildest first."""


@pytest.mark.parametrize("address", ["", "slack", "slack/T1", "slack/T1/C1"])
async def test_the_strictest_approval_of_operator_and_people_counts(tmp_path, address):
    url, blobs_directory = f"sqlite:///{tmp_path / 'bot.db'}", tmp_path / "files"
    scope = values.Scope(*address.split("/"))
    async with databases.Database.open(url, blobs_directory=blobs_directory) as database:
        for operators, peoples in itertools.product(LEVELS, repeat=2):
            place = settings.Place(places=(address,) if address else (), approval=operators)
            all_places = places.Places(settings.Settings(place=(place,)), database)
            await all_places.choose(scope, approval_policy.PREFERENCE_NAME, peoples)
            choices = await all_places.choices(values.Scope("slack", "T1", "C1", "U1"))
            assert approval_policy.effective_approval(choices, "never") == max(
                operators, peoples, key=LEVELS.index
            )
            await all_places.choose(scope, approval_policy.PREFERENCE_NAME, None)
            choices = await all_places.choices(scope)
            assert approval_policy.effective_approval(choices, "never") == operators
