"""Policies: what holds where, what is refused at the start, and what is not told."""

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.egress import policies

THREAD = values.SessionKey("slack", "T1", "C1", "1.2")


def rules(*listed, environment=None):
    return policies.compile_rules([settings.Egress(**one) for one in listed], environment or {})


def test_a_rule_applies_in_its_places():
    every = rules(
        {"host": "all.org"},
        {"host": "workspace.org", "places": ["slack/T1"]},
        {"host": "channel.org", "places": ["slack/T1/C1"]},
        {"host": "other.org", "places": ["slack/T1/C2", "slack/T2", "discord", "slack/T"]},
    )
    found = policies.choose_policy(every, THREAD)
    assert [rule.pattern for rule in found.rules] == ["all.org", "workspace.org", "channel.org"]


def test_the_refusal_of_an_unlisted_host_says_how_to_list_it():
    policy = policies.choose_policy(rules({"host": "a.org", "ports": [443, 8443]}), THREAD)
    assert policy.find("A.org.", 8443)[0] == "a.org"
    for host, port, told in (
        ("b.org", 443, "this host is not allowed"),
        ("a.org", 22, "this port is not allowed"),
        ("127.1", 443, "cannot reach that host"),
    ):
        with pytest.raises(policies.Refusal, match=told) as refused:
            policy.find(host, port)
        assert refused.value.status == 403


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"host": "*.a.org", "addresses": ["10.0.0.0/8"]}, "cannot have `addresses`"),
        ({"host": "a.org", "headers": {"A": "x"}}, "need `paths`"),
        ({"host": "*.a.org", "paths": ["/"], "headers": {"A": "x"}}, "one host"),
        ({"host": "a.org", "methods": ["get"]}, "in capitals"),
        ({"host": "a.org", "methods": ["CONNECT"]}, "never allowed"),
        ({"host": "a.org", "paths": ["a"]}, "begin with /"),
        ({"host": "a.org", "paths": ["/"], "headers": {"A": "${NONE}"}}, "NONE is not set"),
        ({"host": "a.org", "paths": ["/"], "headers": {"A": "$"}}, "variable.s name"),
        ({"host": "a.org", "paths": ["/"], "headers": {"A b": "x"}}, "HTTP does not allow"),
    ],
)
def test_an_invalid_rule_is_an_error_of_settings(rule, told):
    with pytest.raises(errors.SettingsError, match=told):
        rules(rule)


def test_no_description_or_error_contains_a_secret():
    (rule,) = rules(
        {"host": "a.org", "paths": ["/"], "headers": {"Authorization": "Bearer ${TOKEN}"}},
        environment={"TOKEN": "very secret"},
    )
    assert rule.headers == {"Authorization": "Bearer very secret"}
    assert "secret" not in repr(rule)
    with pytest.raises(errors.SettingsError) as refused:
        rules(
            {"host": "a.org", "paths": ["/"], "headers": {"A": "${TOKEN}"}},
            environment={"TOKEN": "secret\r\nX: y"},
        )
    assert "secret" not in str(refused.value)
