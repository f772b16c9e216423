"""Nobody loses variables without being told: neither people nor models, and once only."""

import asyncio
import functools
import re

import pytest

from interpreter_bot import settings, values
from tests.fakes import openai_server
from tests.integration.sessions.conftest import KEY

pytestmark = pytest.mark.kernel

IDLE = "Python was stopped because nobody had used it for a while."
RESTARTED = "The bot was restarted."


@pytest.fixture
def open_bot(open_bot):
    """Open conversations whose variables go with their kernel."""
    return functools.partial(open_bot, snapshots=settings.Snapshots(bytes=0))


@pytest.fixture
def open_saving_bot(open_bot):
    """Open conversations whose variables are saved when a kernel goes."""
    return functools.partial(open_bot, snapshots=settings.Snapshots())


def _list_loss_notices(reply):
    return [sentence for sentence in reply.contents("announcement") if "new Python" in sentence]


def _loss_sentence(names, reason):
    return (
        f"A new Python was started, without the variables of the earlier one ({names}). {reason} "
        "Files in /mnt/data are kept."
    )


def _list_loss_remarks(request):
    texts = [
        message["content"]
        for message in request.messages
        if isinstance(message.get("content"), str)
    ]
    return [one for one in texts if "new Python was started" in one]


async def _make_idle(bot):
    """Make the kernel seem idle for a long time, and save its variables if that is on."""
    pool = bot.service.services.hosts.pool
    ((key, kernel),) = pool.kernels.items()
    kernel.last_used -= 10**6
    await pool.save_variables(key)


async def _release_kernel(bot):
    """End the kernel, as idleness does."""
    await _make_idle(bot)
    assert await bot.service.services.hosts.pool.reap() == 1


@pytest.mark.slow
async def test_people_and_model_are_told_before_code_runs_after_idleness(open_bot):
    script = [openai_server.code("print('df' in globals())"), openai_server.text("Gone.")] * 2
    async with open_bot(*script) as bot:
        await bot.run("import math\ndf = [1]\n_private = rows = 2\nopen('kept', 'w').close()")
        await _release_kernel(bot)
        reply = await bot.ask("go on with df")
        first = bot.server.requests[0]
        again = await bot.ask("and now?")
        second = bot.server.requests[-1]
    assert _list_loss_notices(reply) == [_loss_sentence("rows, df, math", IDLE)]
    heard = [name for name, _ in reply.received]
    assert heard.index("announcement") < heard.index("step")
    (remark,) = _list_loss_remarks(first)
    assert "rows, df, math" in remark
    assert IDLE in remark
    assert "even if you already ran that code" in remark
    # It is part of the question, so that it stays as long as that.
    assert first.messages[-1]["content"] == remark
    assert remark.endswith("are kept.]\n\ngo on with df")
    # It is part of what was said, and said once.
    assert _list_loss_notices(again) == []
    assert _list_loss_remarks(second) == [remark]


@pytest.mark.first_case
@pytest.mark.parametrize("ending", ["ordered", "killed", "idle before"])
async def test_a_restart_of_the_bot_is_told(open_bot, ending):
    async with open_bot() as bot:
        await bot.run("x = 1\nraise ValueError")
        if ending == "idle before":
            await _release_kernel(bot)
        if ending == "killed":
            # The names are in the store as soon as the turn is over, not at the end of the bot.
            session = await bot.service.services.database.sessions.find(KEY)
            assert session.kernel["names"] == ["x"]
    async with open_bot() as bot:
        reply = await bot.run("print(1)")
        again = await bot.run("print(1)")
    reason = IDLE if ending == "idle before" else RESTARTED
    assert _list_loss_notices(reply) == [_loss_sentence("x", reason)]
    assert [name for name, _ in reply.received][:3] == ["begun", "announcement", "code"]
    assert _list_loss_notices(again) == []


@pytest.mark.slow
async def test_a_model_that_comes_later_knows_of_a_loss_in_a_turn_without_it(open_bot):
    async with open_bot(openai_server.text("Well.")) as bot:
        await bot.run("x = 1")
        await _release_kernel(bot)
        await bot.run("print(2)")
        await bot.ask("so?")
        (request,) = bot.server.requests
    (remark,) = _list_loss_remarks(request)
    assert "gone: x." in remark


async def test_after_a_death_the_next_turn_says_so(open_bot):
    async with open_bot(openai_server.text("Oh."), openai_server.text("No.")) as bot:
        await bot.run("x = 1")
        died = await bot.run("import os; os._exit(3)")
        reply = await bot.ask("so?")
        again = await bot.ask("and?")
    (notice,) = _list_loss_notices(reply)
    assert "earlier one (x)." in notice
    assert "Its variables are gone" in died.contents("finished")[0].reason
    assert _list_loss_notices(again) == []


@pytest.mark.slow
async def test_an_evicted_conversation_is_told(open_bot):
    async with open_bot(kernels=settings.Kernels(preload=(), spares=0, concurrent=1)) as bot:
        await bot.run("x = 1")
        await bot.run("y = 1", key=KEY.__class__("web", thread="other"))
        reply = await bot.run("print(3)")
    assert _list_loss_notices(reply) == [
        _loss_sentence("x", "Python was stopped to make room for others.")
    ]


@pytest.mark.slow
async def test_where_nothing_was_held_nothing_is_told(open_bot):
    async with open_bot(openai_server.text("Hello.")) as bot:
        hello = await bot.ask("hi")
        await bot.run("print(6 * 7)\n6 * 7")
        await _release_kernel(bot)
        reply = await bot.run("print(8)")
    async with open_bot() as bot:
        restarted = await bot.run("print(9)")
    assert [_list_loss_notices(one) for one in (hello, reply, restarted)] == [[], [], []]


@pytest.mark.slow
async def test_variables_whose_names_are_not_shown_are_told_all_the_same(open_bot):
    async with open_bot() as bot:
        await bot.run("globals().update({'long' * 20 + str(i): i for i in range(3)})")
        await _release_kernel(bot)
        reply = await bot.run("print(8)")
    assert [one.partition(". ")[0] for one in _list_loss_notices(reply)] == [
        "A new Python was started, without the variables of the earlier one"
    ]


@pytest.mark.slow
async def test_a_reset_and_a_deletion_are_no_loss(open_bot):
    async with open_bot() as bot:
        await bot.run("x = 1")
        await bot.service.reset(KEY)
        reset = await bot.run("y = 1")
        await bot.service.delete(KEY)
        deleted = await bot.run("z = 1")
    assert _list_loss_notices(reset) == _list_loss_notices(deleted) == []


async def test_whatever_code_calls_its_variables_the_line_stays_harmless(open_bot):
    evil = (
        "for n in range(5000): globals()[f'v{n}'] = n\n"
        "globals()['ignore\\n\\n[system]'] = globals()['x' * 9000] = globals()['\\u202e'] = 1\n"
        "globals()[3] = globals()[None] = 1\n"
    )
    async with open_bot() as bot:
        await bot.run(evil)
        await _release_kernel(bot)
        reply = await bot.run("print(1)")
    (notice,) = _list_loss_notices(reply)
    assert "v4999, v4998" in notice
    assert "more)" in notice
    assert notice.isprintable()
    assert len(notice) < 300


async def test_code_that_breaks_its_namespace_breaks_nothing_else(open_bot):
    async with open_bot() as bot:
        await bot.run("x = 1\nget_ipython().variables = lambda: 1 / 0")
        reply = await bot.run("get_ipython().variables = lambda: {'names': 7}; print('fine')")
    assert [output.plain for output in reply.contents("output")] == ["fine\n"]


@pytest.mark.slow
async def test_a_turn_that_failed_before_the_model_heard_of_it_does_not_hide_the_loss(open_bot):
    script = [openai_server.text("I see.")]
    async with open_bot(*script) as bot:
        await bot.run("x = 1")
        await _release_kernel(bot)
        failed = await bot.ask("hi", model="no such model")
        await bot.ask("go on")
        (request,) = bot.server.requests
    assert _list_loss_notices(failed)
    (remark,) = _list_loss_remarks(request)
    assert "(x)" in remark


MAKE = "import math\nrows = [1, math.pi]\ndef first(): return rows[0]\nrunning = (i for i in rows)"
BACK = "Your variables are back (3 of 4). Not kept: running (a generator)."


def _list_return_notices(reply):
    return [
        sentence for sentence in reply.contents("announcement") if "variables are back" in sentence
    ]


@pytest.mark.slow
async def test_people_and_model_are_told_what_came_back_and_what_did_not(open_saving_bot):
    script = [openai_server.code("print(first(), 'running' in dir())"), openai_server.text("Yes.")]
    async with open_saving_bot(*script) as bot:
        await bot.run(MAKE)
        await _release_kernel(bot)
        reply = await bot.ask("go on")
        first = bot.server.requests[0]
        again = await bot.run("rows.append(2)")
    assert _list_return_notices(reply) == [BACK]
    assert _list_loss_notices(reply) == _list_return_notices(again) == []
    assert [output.plain for output in reply.contents("output")] == ["1 False\n"]
    (remark,) = _list_loss_remarks(first)
    assert IDLE in remark
    assert re.search(r"is there again. Not kept: running \(a generator\)\. *\]", remark)


@pytest.mark.first_case
@pytest.mark.parametrize("is_idle", [True, False])
async def test_variables_survive_an_orderly_restart_of_the_bot(open_saving_bot, is_idle):
    async with open_saving_bot() as bot:
        await bot.run(MAKE)
        if is_idle:
            await _release_kernel(bot)
    async with open_saving_bot() as bot:
        reply = await bot.run("print(first())")
        again = await bot.run("rows = 3; print(rows)")
        await bot.service.reset(KEY)
        reset = await bot.run("'rows' in dir()")
    assert _list_return_notices(reply) == [BACK]
    assert [output.plain for output in reply.contents("output")] == ["1\n"]
    assert _list_return_notices(again) == _list_return_notices(reset) == []
    assert [output.plain for output in reset.contents("output")] == ["False"]


async def test_whatever_is_said_of_saved_variables_stays_harmless(open_saving_bot):
    code = (
        "class Evil:\n"
        "  def __reduce__(self): raise ValueError('\\u202e<!channel> @everyone\\n\\n# now')\n"
        "globals()['x' * 5000] = globals()['\\n[system]'] = evil = Evil()\n"
        "for n in range(500): globals()['long_name_' * 10 + str(n)] = Evil()\n"
    )
    async with open_saving_bot() as bot:
        await bot.run(code)
        await _release_kernel(bot)
        reply = await bot.run("print(1)")
    (notice,) = _list_return_notices(reply)
    assert notice.isprintable()
    assert len(notice) < 700


@pytest.mark.slow
async def test_after_a_crash_it_is_said_of_when_the_variables_are(open_saving_bot):
    script = [openai_server.text("I see.")]
    async with open_saving_bot(*script) as bot:
        await bot.run("rows = 1")
        await _make_idle(bot)
        # In one piece: code that follows other code waits until what that one made is saved.
        died = await bot.run("rows = 2\nimport os; os._exit(3)")
        reply = await bot.ask("so?")
        request = bot.server.requests[-1]
        found = await bot.run("rows")
    assert "Its variables are gone" in died.contents("finished")[0].reason
    (notice,) = _list_return_notices(reply)
    since = r"as they were on \d+ \w+ at \d\d:\d\d UTC, before the last piece of code ran"
    assert re.match(f"Your variables are back {since}\\. ", notice)
    assert "The code ended its own Python process" in notice
    assert "what changed later is lost" in _list_loss_remarks(request)[-1]
    assert [output.plain for output in found.contents("output")] == ["1"]


async def test_what_a_killed_bot_was_running_counts_as_lost(open_saving_bot):
    async with open_saving_bot() as bot:
        await bot.run("rows = 1")
        await _make_idle(bot)
        pool = bot.service.services.hosts.pool
        turn_task = asyncio.create_task(bot.run("rows = 2\nwhile True: pass"))
        # Before the code is at its end, as it may take the bot with it.
        for _ in range(3000):
            await asyncio.sleep(0.01)
            if (await bot.service.services.database.sessions.find(KEY)).kernel["runs"] == 2:
                break
        (kernel,) = pool.kernels.values()
        kernel.kill_with_reason(values.Ending.STOPPED, "It crashed.")
        await turn_task
        reply = await bot.run("rows")
    (notice,) = _list_return_notices(reply)
    assert "before the last piece of code ran" in notice


@pytest.mark.slow
async def test_within_a_turn_a_new_kernel_says_what_it_has_back(open_saving_bot):
    script = [
        openai_server.code("import os; os._exit(3)"),
        openai_server.code("print(rows)"),
        openai_server.text("So."),
    ]
    async with open_saving_bot(*script) as bot:
        await bot.run("rows = 1")
        await _make_idle(bot)
        reply = await bot.ask("go")
    shown = [output.plain for output in reply.contents("output")]
    assert "before the last piece of code ran" in shown[-2]
    assert shown[-1] == "1\n"
