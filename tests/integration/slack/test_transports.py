"""Socket Mode and HTTP, logging in, being installed and removed."""

import asyncio
import json

import aiohttp
import pytest

from interpreter_bot import encryption, errors, values
from interpreter_bot.platforms.slack import api_errors, startup
from interpreter_bot.sessions import requests
from interpreter_bot.store import third_party_tables
from tests.fakes import conversations as fake
from tests.fakes.slack_server import worlds as slack_worlds
from tests.fakes.slack_server.servers import Fault
from tests.integration.slack.worlds import HTTP, connect_platform, make_settings


async def test_event_that_comes_again_is_answered_once(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> hi", times=3)
    await slack.until(lambda: slack.answers("C1", ts))
    await asyncio.sleep(0.2)
    assert len(slack.answers("C1", ts)) == len(service.requests) == 1


async def test_event_that_another_replica_or_life_has_taken_is_left_alone(slack, service):
    async with connect_platform(slack, service), connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> hi", times=4)
        await slack.until(lambda: slack.answers("C1", ts))
    async with connect_platform(slack, service):
        for delivery in list(slack.deliveries):
            slack.deliver(delivery.kind, delivery.payload)
        await slack.until(lambda: all(d.acknowledged_after is not None for d in slack.deliveries))
        await asyncio.sleep(0.2)
    assert len(slack.answers("C1", ts)) == len(service.requests) == 1


async def test_dropped_socket_is_replaced_and_nothing_is_lost(slack, service, app):
    for number in range(3):
        slack.drop_sockets()
        ts = slack.say("U1", "C1", f"<@UBOT> {number}")
        await slack.until(lambda ts=ts: slack.answers("C1", ts))
    assert len(service.requests) == 3


async def test_refreshed_socket_loses_nothing(slack, service, app):
    roots = []
    for number in range(3):
        roots.append(slack.say("U1", "C1", f"<@UBOT> a{number}"))
        await slack.refresh_sockets()
        roots.append(slack.say("U1", "C1", f"<@UBOT> b{number}"))
        await asyncio.sleep(0.1)
    await slack.until(lambda: all(slack.answers("C1", ts) for ts in roots))
    assert len(service.requests) == 6


async def test_socket_mode_that_was_switched_off_comes_back_when_it_is_on_again(
    slack, service, app
):
    token, slack.app_token = slack.app_token, "xapp-loopback-other"
    slack.drop_sockets()
    await asyncio.sleep(0.6)
    slack.app_token = token
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    await slack.until(lambda: slack.answers("C1", ts))


async def test_everything_is_acknowledged_in_time_while_slack_itself_is_slow(slack, service):
    # Pings are far apart: on a busy machine one that is late makes the client connect anew, for
    # which it asks the slow Slack, and nothing can be acknowledged without a connection.
    async with connect_platform(slack, service, ping_seconds=10):
        slack.choose_fault = lambda *_: Fault("slow", seconds=4)
        slack.say("U1", "C1", "<@UBOT> hi")
        slack.command("U1", "C1", "/py", "1")
        slack.command("U1", "C1", "/interpreter", "help")
        slack.open_home("U1")
        await slack.until(lambda: all(d.acknowledged_after is not None for d in slack.deliveries))
        assert max(d.acknowledged_after for d in slack.deliveries) < 3
        slack.choose_fault = lambda *_: None


async def test_http_answers_signed_requests(slack, service):
    async def script(turn):
        return turn.done("One.\nTwo.")

    service.script = script
    async with connect_platform(slack, service, **HTTP) as address:
        assert address.startswith("http://127.0.0.1:")
        ts = slack.say("U1", "C1", "<@UBOT> hi", times=2)
        await slack.until(lambda: slack.answers("C1", ts))
        slack.command("U1", "C1", "/interpreter", "limits")
        await slack.until(lambda: slack.world.responses)
        [answer] = slack.answers("C1", ts)
        slack.click("U1", "C1", answer["ts"], "feedback", value="up 1")
        await slack.until(lambda: len(slack.world.responses) == 2)
    assert len(service.requests) == 1


@pytest.mark.parametrize("fault", ["unsigned", "forged", "old"])
async def test_http_refuses_what_slack_did_not_sign(slack, service, fault):
    async with connect_platform(slack, service, **HTTP) as address:
        event = {"type": "message", "channel": "DU1", "user": "U1", "ts": "1.1", "text": "hi"}
        body = json.dumps(
            {"type": "event_callback", "team_id": "T1", "event_id": "E1", "event": event}
        )
        headers = slack.sign(body, age_seconds=600 if fault == "old" else 0)
        if fault == "unsigned":
            headers = {}
        if fault == "forged":
            body = body.replace("hi", "ho")
        headers["Content-Type"] = "application/json"
        url = f"{address}/slack/events"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=headers) as response,
        ):
            assert response.status == 401
    assert service.requests == []


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"X-Slack-Request-Timestamp": "now", "X-Slack-Signature": "v0=1"}, "{}", 401),
        ({"X-Slack-Signature": "v0=\u00e9"}, "{}", 401),
        ({"X-Slack-Request-Timestamp": "9" * 5_000}, "{}", 401),
        ({}, "{", 400),
        ({}, "[]", 400),
        ({}, "[" * 100_000, 400),
        ({"Content-Type": "application/json; charset=klingon"}, "{}", 400),
    ],
)
async def test_http_refuses_what_nobody_can_read(slack, service, caplog, headers, body, status):
    async with connect_platform(slack, service, **HTTP) as address:
        headers = {**slack.sign(body), "Content-Type": "application/json", **headers}
        url = f"{address}/slack/events"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body.encode(), headers=headers) as response,
        ):
            assert response.status == status
    assert "ERROR" not in caplog.text


async def test_http_answers_slacks_challenge(slack, service):
    async with connect_platform(slack, service, **HTTP) as address:
        body = json.dumps({"type": "url_verification", "challenge": "abc", "token": "x"})
        headers = slack.sign(body) | {"Content-Type": "application/json"}
        async with aiohttp.ClientSession() as session:
            url = f"{address}/slack/events"
            async with session.post(url, data=body, headers=headers) as response:
                assert "abc" in await response.text()


@pytest.mark.parametrize(
    ("missing", "transport"),
    [((), "socket"), (("signing_secret",), "socket"), (("app_token",), "http")],
)
async def test_secrets_decide_between_socket_mode_and_http(slack, service, missing, transport):
    secrets = dict.fromkeys(missing, "")
    async with connect_platform(slack, service, listen="127.0.0.1:0", **secrets) as address:
        assert ("http" if address else "socket") == transport
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: slack.answers("C1", ts))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"bot_token": "xoxb-loopback-wrong"}, "SLACK_BOT_TOKEN.*not valid"),
        ({"app_token": "xapp-wrong"}, "SLACK_APP_TOKEN.*not valid"),
        ({"app_token": "", "signing_secret": ""}, "needs SLACK_APP_TOKEN.*SLACK_SIGNING_SECRET"),
        ({"bot_token": ""}, "needs SLACK_BOT_TOKEN"),
        ({"client_id": "1.2"}, "needs SLACK_CLIENT_SECRET"),
        ({"api_base_url": "http://127.0.0.1:9/api/"}, "cannot be reached"),
    ],
)
async def test_login_that_fails_says_why_and_shows_no_secret(slack, service, wrong, sentence):
    with pytest.raises(api_errors.SlackError, match=sentence) as caught:
        async with startup.connected_platform(service, make_settings(slack, **wrong)):
            pass
    assert isinstance(caught.value, errors.BotError)
    for secret in ("xoxb-loopback", "xapp-"):
        assert secret not in str(caught.value).replace("(xoxb-…)", "").replace("(xapp-…)", "")


async def test_where_it_is_is_told(slack, service):
    async with startup.serve(service, make_settings(slack)) as told:
        assert told == "is connected"
    async with startup.serve(service, make_settings(slack, **HTTP)) as told:
        assert told.startswith("listens on http://127.0.0.1:")


async def test_port_that_is_taken_is_said_so(slack, service):
    async with connect_platform(slack, service, **HTTP) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(api_errors.SlackError, match="cannot listen for"):
            async with connect_platform(slack, service, app_token="", listen=f"127.0.0.1:{port}"):
                pass


async def test_secrets_are_not_in_the_settings_words(slack):
    said = repr(make_settings(slack))
    assert "xoxb-" not in said
    assert "xapp-" not in said
    assert slack.signing_secret not in said


async def test_revoked_token_ends_what_runs_and_the_platform_and_is_said_once(
    slack, service, caplog
):
    async def script(turn):
        await asyncio.sleep(60)

    service.script = script
    with pytest.raises(errors.PlatformLostError, match="the token was revoked"):  # noqa: PT012
        async with connect_platform(slack, service):
            slack.say("U1", "C1", "<@UBOT> hi")
            await slack.until(lambda: service.running)
            slack.world.teams["T1"].is_revoked = True
            slack.event({"type": "tokens_revoked", "tokens": {"bot": ["UBOT"]}, "event_ts": "1.1"})
            await asyncio.sleep(20)
    assert service.ends
    assert caplog.text.count("no longer installed in T1") == 1


async def test_token_that_died_without_a_word_is_noticed(slack, service, caplog):
    with pytest.raises(errors.PlatformLostError, match="the token was revoked"):  # noqa: PT012
        async with connect_platform(slack, service):
            slack.world.teams["T1"].is_revoked = True
            slack.say("U1", "C1", "<@UBOT> hi")
            await asyncio.sleep(20)
    assert service.requests == []
    assert caplog.text.count("no longer installed in T1") == 1


async def test_app_token_that_died_ends_the_platform(slack, service):
    sentence = (
        r"bot's token\. Slack refused the app token \(SLACK_APP_TOKEN\): the token is not valid"
    )
    with pytest.raises(errors.PlatformLostError, match=sentence):  # noqa: PT012
        async with connect_platform(slack, service, ping_seconds=0.1):
            slack.app_token = "xapp-another"
            slack.drop_sockets()
            await asyncio.sleep(20)
    with pytest.raises(errors.BotError, match="the token is not valid"):
        async with connect_platform(slack, service, app_token="xapp-dead"):
            pass


async def test_single_refusal_of_the_app_token_is_asked_again(slack, service):
    async with connect_platform(slack, service, ping_seconds=0.1):
        slack.fail("apps.connections.open", Fault("error", error="invalid_auth"))
        slack.drop_sockets()
        await slack.until(lambda: len(slack.called("apps.connections.open")) >= 3)
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: "echo: hi" in str(slack.answers("C1", ts)))


@pytest.mark.first_case
@pytest.mark.parametrize("method", ["users.info", "chat.postMessage", "chat.update"])
@pytest.mark.parametrize("word", ["invalid_auth", "account_inactive", "token_expired"])
async def test_single_refusal_of_the_token_is_asked_again(slack, service, app, method, word):
    slack.fail(method, Fault("error", error=word))
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    await slack.until(lambda: "echo: hi" in str(slack.answers("C1", ts)))
    again = slack.say("U1", "C1", "<@UBOT> still there?")
    await slack.until(lambda: "echo: still there?" in str(slack.answers("C1", again)))


async def test_what_happens_outside_of_turns_is_said_in_the_thread(slack, service, app):
    ts = slack.say("U1", "C1", "<@UBOT> hi")
    await slack.until(lambda: slack.answers("C1", ts))
    key = values.SessionKey("slack", "T1", "C1", ts)
    await service.notify(key, "Variables of <!channel> go in 5 minutes.")
    assert "go in 5 minutes" in slack.answers("C1", ts)[-1]["blocks"][0]["elements"][0]["text"]


async def test_shutdown_lets_answers_finish(slack, service):
    async def script(turn):
        await asyncio.sleep(0.5)
        return await fake.echo(turn)

    service.script = script
    async with connect_platform(slack, service):
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: service.running)
    assert "echo: hi" in slack.answers("C1", ts)[0]["text"]


async def test_shutdown_stops_what_does_not_finish_and_says_so(slack, service):
    async def script(turn):
        await asyncio.sleep(60)

    service.script = script
    async with connect_platform(slack, service, drain_seconds=0.2):
        ts = slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: service.running)
    assert "Stopped." in slack.answers("C1", ts)[0]["text"]
    assert slack.status("C1", ts) == "active"


# slack_sdk names itself to Slack in a way that aiohttp is going to leave.
@pytest.mark.filterwarnings("ignore:.*BasicAuth.*:DeprecationWarning")
async def test_many_workspaces_are_installed_used_and_removed(slack, service, tmp_path):
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = sqlalchemy.create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/tokens.db")
    other = slack_worlds.Team("T2", "xoxb-loopback-token-2", "UBOT2", "BBOT2")
    slack.world.channels["C7"] = slack_worlds.Channel("C7", team="T2")
    slack.world.add_user("U7", team_id="T2")
    more = {"bot_token": "", "client_id": "1.2", "client_secret": "s3cret"}
    tables = third_party_tables.LibraryTables(engine, encryption.KeyRing("", tmp_path / "keys"))
    more |= {**HTTP, "public_url": "https://bot.example", "tables": tables}
    try:
        async with (
            connect_platform(slack, service, **more) as address,
            aiohttp.ClientSession() as session,
        ):
            async with session.get(f"{address}/slack/install") as response:
                page = await response.text()
            state = page.partition("state=")[2].partition("&")[0]
            assert "app_mentions:read" in page
            slack.oauth_codes["code-2"] = other
            cookie = {"slack-app-oauth-state": state}
            url = f"{address}/slack/oauth_redirect?code=code-2&state={state}"
            async with session.get(url, headers={"Cookie": f"slack-app-oauth-state={state}"}) as r:
                assert r.status == 200, (await r.text(), cookie)
            ts = slack.say("U7", "C7", "<@UBOT2> hi")
            await slack.until(lambda: slack.answers("C7", ts))
            assert service.requests[0].key == values.SessionKey("slack", "T2", "C7", ts)
            for team in ("T1", "T2"):
                person = requests.Person("U7")
                await service.places.remember(values.Scope("slack", team, "C7"), "x", person)
            slack.event({"type": "app_uninstalled", "event_ts": "1.2"}, team="T2")
            await slack.until(
                lambda: all(d.acknowledged_after is not None for d in slack.deliveries)
            )
            before = len(slack.calls)
            delivery = slack.event(
                {"type": "message", "channel": "C7", "user": "U7", "ts": "9.9", "text": "<@UBOT2>"},
                team="T2",
            )
            await asyncio.sleep(0.3)
            assert slack.calls[before:] == []
            assert delivery.tries >= 1
        assert len(service.requests) == 1
        # What was remembered there is gone with it.
        left = [
            await service.places.notes(values.Scope("slack", team, "C7")) for team in ("T1", "T2")
        ]
        assert [len(notes) for notes in left] == [1, 0]
    finally:
        await engine.dispose()
