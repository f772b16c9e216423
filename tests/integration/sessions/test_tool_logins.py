"""Code that calls tools with the account of the person whose turn runs, in a real kernel."""

import contextlib
import re

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms import login_pages
from interpreter_bot.sessions import requests
from tests.fakes import authorization_server, replies, tool_servers
from tests.integration.sessions import test_scheduled_turns

pytestmark = pytest.mark.kernel

KEY = values.SessionKey("web", thread="t")
BERT = requests.Person("u2", "Bert")
CALL = "from tools.jira import whoami\nprint(whoami())"
TWICE = """
from tools import ToolError, jira
for _ in range(2):
    try: jira.whoami()
    except ToolError as error: print(error)
"""


@contextlib.asynccontextmanager
async def _open_world(open_bot):
    giver = authorization_server.AuthorizationServer()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(giver.serving())
        whoami = tool_servers.make_tool("whoami")
        server = await stack.enter_async_context(giver.guarding(whoami))

        async def answer(context, name, arguments):
            return giver.tokens[context.request.headers["authorization"].removeprefix("Bearer ")]

        server.answer = answer
        entry = settings.McpServer(
            name="jira",
            url=server.url,
            authorization="person",
            oauth=settings.OAuthLogin(issuer=giver.url),
            approval="never",
        )
        bot = await stack.enter_async_context(open_bot(mcp_servers=(entry,)))
        pages = login_pages.serve(bot.service, settings.ToolLogins(listen="127.0.0.1:0"))
        await stack.enter_async_context(pages)
        yield giver, bot


def join_output(reply):
    """Return the output of code, including its errors, as one text."""
    return " ".join(str(output) for output in reply.contents("output"))


def find_link(reply):
    """Return the link in the only private sentence of a reply."""
    (sentence,) = reply.contents("private")
    return re.search(r"http://\S+", sentence)[0]


async def log_in(giver, address, at_the_giver):
    """Log a person in at the server by a link."""
    async with authorization_server.browser() as mine:
        giver.person = at_the_giver
        assert "Logged in" in await mine.agree(await mine.come_back(address))


async def test_each_person_of_a_thread_is_asked_to_log_in_and_is_themselves(open_bot):
    async with _open_world(open_bot) as (giver, bot):
        broker = bot.service.services.tools
        first = await bot.service.logins.create_link_sentence(
            KEY, requests.Person("u1", "Anna"), "jira"
        )
        await log_in(giver, re.search(r"http://\S+", first)[0], "anna")
        # The first login told what there is to be accepted.
        broker.definitions.accept("jira", broker.definitions.latest("jira").digest)
        assert "anna" in join_output(await bot.run(CALL))

        asked = await bot.run(TWICE, person=BERT)
        address = find_link(asked)
        assert join_output(asked).count("has not logged in") == 2
        # Neither code, nor what is recorded, has the link.
        secret = address.rpartition("/")[2]
        assert secret not in join_output(asked)
        turns = await bot.service.queries.history(KEY)
        assert secret not in repr(turns)
        await log_in(giver, address, "bert")
        # From now on, what one of them left might call as the other.
        for name, person in (("bert", BERT), ("anna", requests.Person("u1", "Anna"))):
            reply = replies.Reply(approvals=["session"])
            assert name in join_output(await bot.run(CALL, reply, person=person))
            (shown,) = reply.contents("approve")
            assert "your own account. Other people ran code" in shown
            assert reply.was_personal
            assert name in join_output(await bot.run(CALL, person=person))

        listed = [
            (await bot.service.queries.list_tools(KEY, requests.Person(one)))[0].is_logged_in
            for one in ("u1", "u2", "u3")
        ]
        assert listed == [True, True, False]
        await bot.service.logins.log_out(KEY, "u2", "jira")
        assert "has not logged in" in join_output(await bot.run(CALL, person=BERT))
        assert "anna" in join_output(await bot.run(CALL))
        for token in giver.tokens:
            assert token not in repr(await bot.service.queries.history(KEY))


LEFT = """
import builtins
from tools.jira import whoami
print(whoami())
taken, real = [], print
def print(*shown):
    try: taken.append(whoami())
    except Exception as error: taken.append(str(error))
    real(*shown)
builtins.print = print
"""


async def test_what_a_person_left_calls_nothing_as_another_who_does_not_agree(open_bot):
    async with _open_world(open_bot) as (giver, bot):
        broker = bot.service.services.tools
        for person, name in ((requests.Person("u1", "Anna"), "anna"), (BERT, "bert")):
            sentence = await bot.service.logins.create_link_sentence(KEY, person, "jira")
            await log_in(giver, re.search(r"http://\S+", sentence)[0], name)
        broker.definitions.accept("jira", broker.definitions.latest("jira").digest)
        assert "anna" in join_output(await bot.run(LEFT))
        reply = replies.Reply(approvals=[None])
        taken = join_output(await bot.run("print(1)\ntaken", reply, person=BERT))
        assert "tool whoami was not approved" in taken
        assert "bert" not in taken
        # What one agreed to while two were there is asked again once there is a third.
        agreed = replies.Reply(approvals=["session"])
        assert "bert" in join_output(await bot.run(CALL, agreed, person=BERT))
        await bot.run("1", person=requests.Person("u3", "Carl"))
        refused = replies.Reply(approvals=[None])
        assert "was not approved" in join_output(await bot.run(CALL, refused, person=BERT))


async def test_a_schedule_calls_nothing_as_its_owner_in_code_of_others(open_bot):
    async with _open_world(open_bot) as (giver, bot):
        calendar, broker = test_scheduled_turns.Calendar(bot), bot.service.services.tools
        first = await bot.service.logins.create_link_sentence(
            KEY, requests.Person("u1", "Anna"), "jira"
        )
        await log_in(giver, re.search(r"http://\S+", first)[0], "anna")
        broker.definitions.accept("jira", broker.definitions.latest("jira").digest)
        await bot.run(CALL)
        await calendar.propose("daily 9:00 UTC: refresh it")
        await calendar.next_day()
        await bot.run("open('x.py', 'w').write('')", person=BERT)
        await calendar.next_day()
        alone, beside_bert = map(join_output, calendar.shown)
        assert "anna" in alone
        assert "anna" not in beside_bert
        assert "nobody" in beside_bert.lower()


async def test_nobody_logs_in_where_no_page_is_served(open_bot):
    async with _open_world(open_bot) as (_, bot):
        bot.service.logins.person_logins.address = ""
        with pytest.raises(errors.BotError, match="does not serve the login page"):
            await bot.service.logins.create_link_sentence(KEY, BERT, "jira")
        with pytest.raises(errors.BotError, match="no tool server 'other'"):
            await bot.service.logins.create_link_sentence(KEY, BERT, "other")
