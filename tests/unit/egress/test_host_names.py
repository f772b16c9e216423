"""Names of hosts: one form, no address in disguise, no pattern that covers everybody's."""

import pytest

from interpreter_bot import errors
from interpreter_bot.egress import host_names

DISGUISED = (
    *(
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "\uff11\uff12\uff17.0.0.1",
        "a.0x7f",
        "1.2.3",
        "a.1",
    ),
    *("", ".", "a..b", "-a.org", "a-.org", "a b.org", "a.org:80", "user@a.org", "a.org/x"),
    *("::1%x.allowed.com", "[::1", "a.org\x00", "a.org\n", "*.a.org", "x" * 64 + ".org"),
    ".".join(["x" * 60] * 5) + ".org",
)


@pytest.mark.parametrize("host", DISGUISED)
def test_an_invalid_host_name_is_refused(host):
    with pytest.raises(host_names.NameRefusedError):
        host_names.normalize(host)


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("API.Example.ORG.", "api.example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("\uff45xample.org", "example.org"),
        ("[::FFFF:0102:0304]", "::ffff:1.2.3.4"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("10.0.0.1", "10.0.0.1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_name_has_one_normal_form(host, form):
    assert host_names.normalize(host) == form


@pytest.mark.parametrize(
    "host",
    ["*", "*.com", "*.co.uk", "*.github.io", "*.127.0.0.1", "*.*.org", "a.*.org", "http://a.org"],
)
def test_a_pattern_that_is_too_broad_is_refused(host):
    with pytest.raises(errors.SettingsError, match="egress"):
        host_names.normalize_pattern(host)


def test_a_wildcard_matches_only_names_below_it():
    wanted = host_names.normalize_pattern("*.Example.org")
    assert host_names.matches("a.example.org", wanted)
    assert host_names.matches("a.b.example.org", wanted)
    for other in ("example.org", ".example.org", "badexample.org", "a.example.org.evil.com"):
        assert not host_names.matches(other, wanted)
    assert not host_names.matches("a_b.example.org", wanted), "an underscore is listed by itself"
    assert host_names.matches("a_b.example.org", host_names.normalize_pattern("a_b.example.org"))
