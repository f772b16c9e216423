"""Who may use the bot, and where."""

import pytest

from interpreter_bot.platforms.chat import policies


def _asker(user=1, guild=10, channels=(20,), roles=(), **others):
    return policies.Requester(
        person=user,
        workspace=guild,
        channels=channels,
        groups=roles,
        **{"is_direct": guild is None, **others},
    )


@pytest.mark.parametrize(
    ("requester", "allowed", "is_allowed"),
    [
        (_asker(), {}, True),
        (_asker(), {"workspaces": (10,)}, True),
        (_asker(), {"workspaces": (11,)}, False),
        (_asker(channels=(30, 20)), {"channels": (20,)}, True),
        (_asker(), {"channels": (21,)}, False),
        (_asker(roles=(5, 6)), {"groups": (6,)}, True),
        (_asker(), {"groups": (6,)}, False),
        (_asker(), {"groups": (6,), "people": (1,)}, True),
        (_asker(guild=None), {}, True),
        (_asker(guild=None), {"workspaces": (10,)}, False),
        (_asker(guild=None), {"channels": (20,)}, False),
        (_asker(guild=None, is_member=True), {"workspaces": (10,)}, True),
        (_asker(guild=None, is_member=True), {"workspaces": (10,), "people": (2,)}, False),
        (_asker(guild=None), {"workspaces": (10,), "people": (1,)}, True),
        (_asker(guild=None, roles=(6,)), {"workspaces": (10,), "groups": (6,)}, True),
        (_asker(is_bot_there=False), {}, False),
        (_asker(guild=None, is_bot_there=False), {"people": (1,)}, False),
        (_asker(guild=None), {"people": (2,)}, False),
        (_asker(guild=None), {"allows_direct": False}, False),
        (_asker(is_direct=True), {"channels": (21,)}, True),
        (_asker(is_direct=True), {"workspaces": (11,)}, False),
        (_asker(is_admin=True), {"people": (2,)}, True),
        (_asker(is_bot=True), {"people": (1,)}, False),
        (_asker(is_guest=True, is_admin=True), {"allows_guests": False}, False),
        (_asker(is_outsider=True), {"allows_outsiders": False}, False),
        (_asker(is_guest=True, is_outsider=True), {}, True),
    ],
)
def test_permits(requester, allowed, is_allowed):
    refusal = policies.refusal(requester, policies.Rules(**allowed))
    assert (refusal is None) is is_allowed


def test_a_refused_place_is_told_from_a_refused_person():
    rules = policies.Rules(channels=(21,), people=(2,))
    assert isinstance(policies.refusal(_asker(), rules), policies.NotHereError)
    error = policies.refusal(_asker(channels=(21,)), rules)
    assert not isinstance(error, policies.NotHereError)
    assert "don't have access" in str(error)
