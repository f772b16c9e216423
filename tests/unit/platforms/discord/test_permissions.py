"""Who may, what holds, what a message says, how an answer is laid out."""

import pytest

from interpreter_bot import settings
from interpreter_bot.platforms.discord import (
    message_parsing,
    permissions,
)


def _asker(user=1, guild=10, channels=(20,), roles=(), **others):
    return permissions.Member(user, guild, channels, roles, **others)


@pytest.mark.parametrize(
    ("asker", "allowed", "is_allowed"),
    [
        (_asker(), {}, True),
        (_asker(), {"guilds": (10,)}, True),
        (_asker(), {"guilds": (11,)}, False),
        (_asker(channels=(30, 20)), {"channels": (20,)}, True),
        (_asker(), {"channels": (21,)}, False),
        (_asker(roles=(5, 6)), {"roles": (6,)}, True),
        (_asker(), {"roles": (6,)}, False),
        (_asker(), {"roles": (6,), "people": (1,)}, True),
        (_asker(guild=None), {}, True),
        (_asker(guild=None), {"guilds": (10,)}, False),
        (_asker(guild=None), {"channels": (20,)}, False),
        (_asker(guild=None, is_member=True), {"guilds": (10,)}, True),
        (_asker(guild=None, is_member=True), {"guilds": (10,), "people": (2,)}, False),
        (_asker(guild=None), {"guilds": (10,), "people": (1,)}, True),
        (_asker(guild=None, roles=(6,)), {"guilds": (10,), "roles": (6,)}, True),
        (_asker(is_bot_there=False), {}, False),
        (_asker(guild=None, is_bot_there=False), {"people": (1,)}, False),
        (_asker(guild=None), {"people": (2,)}, False),
        (_asker(guild=None), {"direct_messages": False}, False),
    ],
)
def test_permits(asker, allowed, is_allowed):
    assert (permissions.refusal(asker, settings.Discord(**allowed)) == "") is is_allowed


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("plot the sales", "plot the sales"),
        ("\n\n```py\nprint()\n```", "py"),
        ("word " * 50, ("word " * 16).strip() + "…"),
        ("", "Interpreter"),
        ("x" * 300, "x" * 80 + "…"),
    ],
)
def test_title_of_a_thread(text, title):
    assert message_parsing.title(text) == title
    assert 1 <= len(message_parsing.title(text)) <= 100
