"""Events that Slack's documentation does not promise: each is passed over, and nothing ends."""

import pytest

ODD_MESSAGES = [
    {},
    {"channel": "C1"},
    {"channel": "C1", "user": "U1"},
    {"channel": "C1", "user": "U1", "text": "<@UBOT> hi"},
    {"channel": "C1", "user": "U1", "text": "<@UBOT> hi", "ts": None},
    {"channel": "C1", "user": "U1", "text": "<@UBOT> hi", "ts": "soon"},
    {"channel": None, "user": "U1", "text": "hi", "ts": "1.2"},
    {"channel": "C1", "user": {"id": "U1"}, "text": ["hi"], "ts": "1.2"},
    {"channel": "C1", "user": "U1", "text": None, "ts": "1.2", "files": [None, {}, "x"]},
    {"channel": "C1", "user": "U1", "text": "<@UBOT>", "ts": "1.3", "files": {"id": "F1"}},
    {"channel": "C1", "subtype": "message_changed"},
    {"channel": "C1", "subtype": "message_changed", "message": None, "previous_message": None},
    {"channel": "C1", "subtype": "message_changed", "message": {"edited": "yes", "user": "U1"}},
    {"channel": "C1", "subtype": "message_deleted"},
    {"channel": "C1", "subtype": ["odd"], "user": "U1", "ts": "1.4"},
    {"channel": "C1", "thread_ts": "99.1", "user": "U1", "text": "hi", "ts": "1.5", "blocks": {}},
]
ODD_EVENTS = [
    {"type": "app_home_opened"},
    {"type": "app_home_opened", "user": "U1", "tab": "messages"},
    {"type": "agent_session_stopped"},
    {"type": "agent_session_stopped", "channel": "C1", "thread_ts": "1.2", "user": "NOBODY"},
    {"type": "agent_session_title_changed", "title": None},
    {"type": "tokens_revoked", "tokens": None},
    {"type": "app_context_changed", "context": []},
    {"type": "never_heard_of"},
]


async def _works(slack):
    ts = slack.say("U1", "C1", "<@UBOT> still there?")
    await slack.until(lambda: "echo: still there?" in str(slack.answers("C1", ts)))
    await slack.until(
        lambda: all(delivery.acknowledged_after is not None for delivery in slack.deliveries)
    )


@pytest.mark.parametrize("kind", ["message", "app_mention"])
async def test_odd_messages_end_nothing(slack, service, app, kind):
    for odd in ODD_MESSAGES:
        slack.event({"type": kind, **odd}, times=2)
    await _works(slack)


async def test_odd_events_end_nothing(slack, service, app):
    for odd in ODD_EVENTS:
        slack.event(odd)
    await _works(slack)


async def test_odd_interactions_end_nothing(slack, service, app):
    who = {"id": "U1", "team_id": "T1"}
    base = {"team": {"id": "T1"}, "user": who, "api_app_id": "A1", "trigger_id": "t"}
    for action in ({}, {"action_id": "stop"}, {"action_id": "stop", "value": "a/b"}):
        for name in (
            "stop",
            "queries",
            "code",
            "csv_1",
            "page",
            "command_confirm",
            "nobody",
        ):
            facts = {"actions": [{"type": "button", "action_id": name, "block_id": "b", **action}]}
            slack.deliver("interactive", {**base, "type": "block_actions", **facts})
            facts["channel"] = {"id": "C1"}
            slack.deliver("interactive", {**base, "type": "block_actions", **facts})
    for view in ({}, {"private_metadata": "{"}, {"private_metadata": "[]", "state": None}):
        for name in ("run_form", "ask_form", "edit_form", "access_form", "nobody"):
            shown = {"type": "modal", "callback_id": name, **view}
            slack.deliver("interactive", {**base, "type": "view_submission", "view": shown})
    await _works(slack)


async def test_answer_edited_before_its_message_came_and_events_in_any_order(slack, service, app):
    ts = slack.world.next_ts()
    message = {"type": "message", "user": "U1", "text": "<@UBOT> two", "ts": ts, "team": "T1"}
    slack.world.messages["C1", ts] = dict(message)
    event = {"type": "message", "subtype": "message_changed", "channel": "C1", "ts": ts}
    edited = {**message, "edited": {"user": "U1", "ts": ts}}
    slack.event({**event, "message": edited, "previous_message": {**message, "text": "one"}})
    slack.event({**message, "channel": "C1"}, times=2)
    slack.event({**message, "type": "app_mention", "channel": "C1"}, times=2)
    await _works(slack)
    assert {request.text for request in service.requests} == {"two", "still there?"}
