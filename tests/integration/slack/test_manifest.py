"""The manifest asks for what the code uses, and announces what the code answers."""

import pathlib

import yaml

from interpreter_bot.platforms.slack import app, installations
from interpreter_bot.wording import slack_words

MANIFEST = yaml.safe_load(
    (pathlib.Path(__file__).parents[3] / "manifest.yml").read_text(encoding="utf-8")
)


def test_scopes_are_those_of_the_code():
    assert MANIFEST["oauth_config"]["scopes"]["bot"] == sorted(installations.SCOPES)


def test_events_are_those_of_the_code():
    events = MANIFEST["settings"]["event_subscriptions"]["bot_events"]
    assert events == sorted(app.EVENTS)


def test_commands_and_shortcuts_are_those_of_the_code():
    features = MANIFEST["features"]
    assert [c["command"] for c in features["slash_commands"]] == list(app.COMMANDS)
    assert [s["callback_id"] for s in features["shortcuts"]] == list(app.SHORTCUTS)


def test_every_event_has_somebody_who_hears_it():
    heard = set()

    class Recorder:
        def __getattr__(self, kind):
            def record(name):
                heard.add((kind, getattr(name, "pattern", name)))
                return lambda handler: handler

            return record

    listeners = app.Listeners(*[_Anything()] * 7)
    listeners.register(Recorder())
    names = {event.partition(".")[0] for event in app.EVENTS}
    assert {name for kind, name in heard if kind == "event"} == names
    assert {name for kind, name in heard if kind == "command"} == set(app.COMMANDS)
    assert {name for kind, name in heard if kind == "shortcut"} == set(app.SHORTCUTS)


class _Anything:
    def __getattr__(self, name):
        return {}


def test_texts_fit_and_prompts_are_those_of_the_code():
    view = MANIFEST["features"]["agent_view"]
    assert len(view["agent_description"]) <= 300
    shown = {(p["title"], p["message"]) for p in view["suggested_prompts"]}
    assert shown <= set(slack_words.SUGGESTED_PROMPTS)
    information = MANIFEST["display_information"]
    assert len(information["name"]) <= 35
    assert len(information["description"]) <= 140
    assert 175 <= len(information["long_description"]) <= 4000
    for shortcut in MANIFEST["features"]["shortcuts"]:
        assert len(shortcut["name"]) <= 24
    for command in MANIFEST["features"]["slash_commands"]:
        assert len(command["usage_hint"]) <= 1000


def test_home_and_agent_view_are_on():
    home = MANIFEST["features"]["app_home"]
    assert home["home_tab_enabled"]
    assert home["messages_tab_enabled"]
    assert not home["messages_tab_read_only_enabled"]
    assert MANIFEST["settings"]["socket_mode_enabled"]
    assert MANIFEST["settings"]["interactivity"]["is_enabled"]


def test_token_is_not_in_the_words_of_a_workspace():
    assert "xoxb-secret" not in repr(
        installations.InstalledWorkspace("T1", "U1", "B1", "xoxb-secret")
    )
