"""Logins of people at a real MCP server, guarded by a strict server of OAuth, over real pages."""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import re
import types

import cryptography.fernet
import pytest

from interpreter_bot import encryption, errors, settings, values
from interpreter_bot.mcp_servers import server_connections, tool_broker
from interpreter_bot.platforms import login_pages
from interpreter_bot.sessions import requests, tool_logins
from interpreter_bot.store import databases
from tests.fakes import authorization_server, tool_servers
from tests.fakes.authorization_server import browser

KEY = values.SessionKey("slack", "T1", "C1", "1.2")
ANNA = requests.Person("U1", 'Anna <b>"&')
BERT = requests.Person("U2", "Bert")


@dataclasses.dataclass
class World:
    """A bot with one server of tools, who gives tokens for it, and its database."""

    giver: authorization_server.AuthorizationServer
    server: tool_servers.ToolServer
    broker: tool_broker.ToolBroker
    logins: tool_logins.ToolLogins
    database: databases.Database

    async def link(self, person=ANNA):
        """Return the link that a person is sent."""
        sentence = await self.logins.create_link_sentence(KEY, person, "jira")
        return re.search(r"http://\S+", sentence)[0]

    async def log_in(self, person=ANNA, at_the_giver="anna"):
        """Log a person in, as they do it in a browser."""
        async with browser() as mine:
            self.giver.person = at_the_giver
            page = await mine.agree(await mine.come_back(await self.link(person)))
            assert "Logged in" in page, page

    async def call(self, person=ANNA):
        """Call a tool for a person."""
        account = tool_logins.make_account(KEY, person.id, "jira")
        await self.broker.find(KEY, account, "whoami")
        result = await self.broker.call(account, "whoami", {}, progress=None)
        return result["parts"][0]["text"]


@contextlib.asynccontextmanager
async def opened(tmp_path, *, is_named=True, **options):
    """Open a world."""
    giver = authorization_server.AuthorizationServer()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(giver.serving())
        whoami = tool_servers.make_tool("whoami")
        server = await stack.enter_async_context(giver.guarding(whoami))

        async def answer(context, name, arguments):
            token = context.request.headers["authorization"].removeprefix("Bearer ")
            return f"{giver.tokens[token]} {token}"

        server.answer = answer
        if is_named:
            options["oauth"] = settings.OAuthLogin(issuer=giver.url, **options.get("oauth", {}))
        entry = settings.McpServer(
            name="jira", url=server.url, authorization="person", approval="never", **options
        )
        opening = databases.Database.open(
            f"sqlite:///{tmp_path}/b.db", blobs_directory=tmp_path / "kept"
        )
        database = await stack.enter_async_context(opening)
        keys = encryption.KeyRing(cryptography.fernet.Fernet.generate_key().decode(), tmp_path)
        config = settings.Settings(
            mcp_servers=(entry,), paths=settings.Paths(data=tmp_path / "data")
        )
        opening = tool_broker.open_broker(config, {}, database.accounts, keys)
        broker = await stack.enter_async_context(opening)
        logins = tool_logins.ToolLogins(types.SimpleNamespace(tools=broker))
        service = types.SimpleNamespace(logins=logins)
        pages = login_pages.serve(service, settings.ToolLogins(listen="127.0.0.1:0"))
        await stack.enter_async_context(pages)
        yield World(giver, server, broker, logins, database)


@pytest.fixture
def opening(tmp_path):
    return functools.partial(opened, tmp_path)


async def accept(world, person=ANNA):
    """Let an administrator accept the tools that a person was offered."""
    listing = await world.broker.fetch_listing(
        "jira", tool_logins.make_account(KEY, person.id, "jira")
    )
    world.broker.definitions.accept("jira", listing.digest)


async def test_a_person_logs_in_and_calls_with_their_own_account(opening, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "interpreter_bot")
    async with opening() as world, browser() as mine:
        with pytest.raises(errors.LoginNeededError):
            await world.call()
        link = await world.link()
        back = await mine.come_back(link)
        assert "Anna &lt;b&gt;&quot;&amp;" in (await mine.agree(back), mine.text)[1]
        await accept(world)
        said = await world.call()
        assert said.startswith("anna ")
        # The token is nowhere: not in the answer, the database or a log.
        (token,) = world.giver.tokens
        (renewing,) = world.giver.refresh_tokens
        assert token not in said
        stored = (tmp_path / "b.db").read_bytes() + (tmp_path / "b.db-wal").read_bytes()
        for secret in (token, renewing, link.rpartition("/")[2]):
            assert secret.encode() not in stored
            assert secret not in caplog.text


async def test_two_people_of_a_thread_never_share_an_account(opening):
    async with opening() as world:
        await world.log_in()
        await accept(world)
        with pytest.raises(errors.LoginNeededError):
            await world.call(BERT)
        await world.log_in(BERT, "bert")
        said = await asyncio.gather(*(world.call(one) for one in (ANNA, BERT) * 3))
        assert [one.split()[0] for one in said] == ["anna", "bert"] * 3


async def test_an_old_token_is_refreshed_once_by_all_who_call(opening):
    async with opening() as world:
        world.giver.seconds = 0
        await world.log_in()
        await accept(world)
        world.giver.seconds = 10**400
        world.giver.token_requests.clear()
        said = await asyncio.gather(*(world.call() for _ in range(5)))
        assert {one.split()[0] for one in said} == {"anna"}
        kinds = [form["grant_type"] for form in world.giver.token_requests]
        assert kinds == ["refresh_token"]
        assert all(form["resource"] == world.server.url for form in world.giver.token_requests)


async def test_a_token_that_the_server_forgot_is_refreshed_else_the_person_logs_in(opening):
    async with opening() as world:
        await world.log_in()
        await accept(world)
        world.giver.tokens.clear()
        assert (await world.call()).startswith("anna ")
        world.giver.tokens.clear()
        world.giver.refresh_tokens.clear()
        with pytest.raises(errors.LoginNeededError):
            await world.call()
        await world.log_in()
        assert (await world.call()).startswith("anna ")


async def test_who_leaves_is_forgotten_and_the_token_is_revoked(opening):
    async with opening() as world:
        await world.log_in()
        await accept(world)
        assert "logged out" in await world.logins.log_out(KEY, ANNA.id, "jira")
        assert not world.giver.tokens
        with pytest.raises(errors.LoginNeededError):
            await world.call()
        assert "were not" in await world.logins.log_out(KEY, ANNA.id, "jira")


async def test_a_token_that_comes_after_a_stop_is_kept(opening):
    async with opening() as world:
        world.giver.seconds = 0
        await world.log_in()
        world.giver.renewed.clear()
        world.giver.may_renew.clear()
        account = tool_logins.make_account(KEY, ANNA.id, "jira")
        asking = asyncio.create_task(world.broker.logins.get_token(account))
        await world.giver.renewed.wait()
        asking.cancel()
        # The former one is used up there by now.
        world.giver.may_renew.set()
        await asyncio.wait({asking})
        assert await world.broker.logins.get_token(account) in world.giver.tokens


async def test_what_was_learned_with_a_former_login_is_learned_anew(opening):
    async with opening() as world:
        await world.log_in()
        await accept(world)
        assert (await world.call()).startswith("anna ")
        world.server.tools = [tool_servers.make_tool("of_bert")]
        await world.log_in(at_the_giver="bert")
        listing = await world.broker.fetch_listing(
            "jira", tool_logins.make_account(KEY, ANNA.id, "jira")
        )
        assert [*listing.tools] == ["of_bert"]


async def test_who_leaves_while_idle_connections_are_closed_disturbs_nobody(opening, monkeypatch):
    async with opening() as world:
        await world.log_in()
        await world.log_in(BERT, "bert")
        await accept(world)
        await asyncio.gather(world.call(), world.call(BERT))
        monkeypatch.setattr(server_connections, "_IDLE_SECONDS", -1.0)
        bert = tool_logins.make_account(KEY, BERT.id, "jira")
        await asyncio.gather(world.broker.refresh_all(), world.broker.disconnect(bert))
        assert (await world.call(BERT)).startswith("bert ")


async def test_who_leaves_is_told_so_though_the_token_cannot_be_revoked(opening):
    async with opening() as world:
        world.giver.metadata["revocation_endpoint"] = f"https://{'x' * 64}.test/"
        await world.log_in()
        assert "logged out" in await world.logins.log_out(KEY, ANNA.id, "jira")


async def test_a_link_ends_with_no_character_that_chats_leave_out(opening):
    async with opening() as world:
        links = [await world.link() for _ in range(20)]
        assert all(link.rpartition("/")[2].isalnum() for link in links)


async def test_the_mark_of_a_browser_is_for_one_server(opening):
    async with opening() as world, browser() as mine:
        answer = await mine.post(await world.link(), allow_redirects=False)
        (cookie,) = answer.cookies.values()
        assert cookie["path"] == f"{login_pages.PATH}/back/jira"


async def test_a_link_is_used_once_and_opening_it_has_no_effect(opening):
    async with (
        opening() as world,
        browser() as mine,
        browser() as other,
    ):
        link = await world.link()
        for _ in range(3):
            assert (await other.get(link)).status == 200
        back = await mine.come_back(link)
        assert (await other.get(link)).status == 400
        assert (await other.post(link)).status == 400
        assert "Logged in" in await mine.agree(back)
        # Neither can the way back be gone twice.
        assert "That did not work" in await mine.agree(back)
        assert len(world.giver.token_requests) == 1


async def test_a_newer_link_ends_the_one_before(opening):
    async with opening() as world, browser() as mine:
        former = await world.link()
        await world.link()
        assert (await mine.get(former)).status == 400


async def test_only_the_browser_that_went_on_may_come_back(opening):
    async with (
        opening() as world,
        browser() as mine,
        browser() as other,
    ):
        back = await mine.come_back(await world.link())
        assert "That did not work" in await other.agree(back)
        assert not world.giver.token_requests
        # Which ends nothing for the person.
        assert "Logged in" in await mine.agree(back)


async def test_a_state_of_another_login_is_refused(opening):
    async with (
        opening() as world,
        browser() as mine,
        browser() as other,
    ):
        annas = await mine.come_back(await world.link())
        berts = await other.come_back(await world.link(BERT))
        swapped = re.sub(r"code=[^&]+", re.search(r"code=[^&]+", annas)[0], berts)
        # The code is of another challenge, so the giver refuses it.
        assert "That did not work" in await other.agree(swapped)
        forged = re.sub(r"state=[^&]+", "state=x", annas)
        assert "That did not work" in await mine.agree(forged)
        for person in (ANNA, BERT):
            with pytest.raises(errors.LoginNeededError):
                await world.call(person)


@pytest.mark.parametrize("lie", ["iss=http%3A%2F%2Fevil.test", ""])
async def test_an_answer_of_another_issuer_is_refused(opening, lie):
    async with opening() as world, browser() as mine:
        back = await mine.come_back(await world.link())
        mixed = re.sub(r"iss=[^&]+", lie, back)
        assert "so it was refused" in await mine.agree(mixed)
        elsewhere = back.replace("/back/jira", "/back/other")
        # A browser would not send it there.
        (mark,) = mine.session.cookie_jar
        await mine.get(elsewhere, cookies={mark.key: mark.value})
        assert "so it was refused" in mine.text
        assert not world.giver.token_requests


async def test_a_login_is_over_after_ten_minutes(opening, monkeypatch):
    from interpreter_bot.mcp_servers import person_logins

    async with opening() as world, browser() as mine:
        link = await world.link()
        back = await mine.come_back(await world.link(BERT))
        monkeypatch.setattr(person_logins, "_MAX_LOGIN_AGE", person_logins._MAX_LOGIN_AGE * 0)
        assert (await mine.get(link)).status == 400
        assert "expired after ten minutes" in await mine.agree(back)


async def test_pages_of_others_cannot_press_the_buttons(opening):
    async with opening() as world, browser() as mine:
        link = await world.link()
        foreign = {"Origin": "http://evil.test"}
        assert (await mine.post(link, headers=foreign)).status == 403
        answer = await mine.get(link)
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "same-origin"


LIES = {
    "another resource": ("resource", {"resource": "http://127.0.0.1:9/mcp"}),
    "another issuer": ("resource", {"authorization_servers": ["https://evil.test"]}),
    "no PKCE": ("metadata", {"code_challenge_methods_supported": ["plain"]}),
    "says nothing of PKCE": ("metadata", {"code_challenge_methods_supported": None}),
    "not itself": ("metadata", {"issuer": "https://evil.test"}),
    "plain HTTP": ("metadata", {"token_endpoint": "http://evil.test/token"}),
    "a page that is none": ("metadata", {"authorization_endpoint": "javascript:alert(1)"}),
    "a page in the clear": ("metadata", {"authorization_endpoint": "http://evil.test/"}),
    "this machine": ("metadata", {"registration_endpoint": "https://127.0.0.1:9/x"}),
    "this machine, in hexadecimals": ("metadata", {"registration_endpoint": "https://0x7f.1/x"}),
    "a cloud's credentials": ("metadata", {"registration_endpoint": "https://169.254.169.254/"}),
    "a private network": ("metadata", {"registration_endpoint": "https://[fd00::1]/"}),
    "huge": ("metadata", {"service_documentation": "https://evil.test/" + "x" * 1_000_000}),
}


@pytest.mark.parametrize("lie", LIES)
async def test_lies_about_who_gives_tokens_are_refused_with_a_sentence(opening, lie):
    async with opening() as world, browser() as mine:
        where, told = LIES[lie]
        getattr(world.giver, where).update(told)
        answer = await mine.post(await world.link(), allow_redirects=False)
        assert (answer.status, "jira" in mine.text) == (400, True), mine.text
        assert "/authorize" not in world.giver.requested_paths


async def test_who_gives_tokens_at_a_private_address_is_not_asked_unless_named(opening):
    async with opening(is_named=False) as world, browser() as mine:
        answer = await mine.post(await world.link(), allow_redirects=False)
        assert answer.status == 400
        assert world.giver.requested_paths == []


async def test_a_bot_that_is_registered_by_hand_registers_nowhere(opening):
    async with opening(oauth={"client_id": "ours"}) as world:
        page = f"{world.logins.person_logins.address}{login_pages.PATH}/back/jira"
        world.giver.clients["ours"] = {"redirect_uris": [page]}
        del world.giver.metadata["registration_endpoint"]
        await world.log_in()
        assert world.giver.token_requests[0]["client_id"] == "ours"
        assert "/register" not in world.giver.requested_paths


async def test_two_people_are_one_client(opening):
    async with opening() as world:
        await world.log_in()
        await world.log_in(BERT, "bert")
        assert world.giver.requested_paths.count("/register") == 1


async def test_what_is_kept_of_one_person_serves_no_other(opening):
    async with opening() as world:
        await world.log_in()
        anna, bert = (tool_logins.make_account(KEY, one.id, "jira") for one in (ANNA, BERT))
        await world.database.accounts.put(bert, await world.database.accounts.find(anna))
        with pytest.raises(errors.BotError):
            await world.call(BERT)


async def test_who_forgot_the_bot_is_registered_at_anew_by_the_next_link(opening):
    async with opening() as world, browser() as mine:
        await world.log_in()
        await accept(world)
        world.giver.clients.clear()
        answer = await mine.get(await mine.go_on(await world.link()))
        assert answer.status == 400  # Only the person sees that.
        await world.log_in()
        assert (await world.call()).startswith("anna ")
        # What refuses to renew a token for that reason says so to the bot itself.
        world.giver.clients.clear()
        world.giver.tokens.clear()
        with pytest.raises(errors.LoginNeededError):
            await world.call()
        await world.log_in()
        assert (await world.call()).startswith("anna ")


async def test_whose_login_is_good_no_more_counts_as_logged_out(opening):
    async with opening() as world:
        account = tool_logins.make_account(KEY, ANNA.id, "jira")
        await world.log_in()
        await accept(world)
        assert await world.broker.logins.has_login(account)
        world.giver.tokens.clear()
        world.giver.refresh_tokens.clear()
        with pytest.raises(errors.LoginNeededError):
            await world.call()
        assert not await world.broker.logins.has_login(account)
        await world.log_in()
        assert await world.broker.logins.has_login(account)
