"""Conversations that are copied, taken back by a turn, and mended with recorded cells."""

import asyncio
import functools
import json
import os

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import session_forks, snapshots
from interpreter_bot.store import session_copies
from tests.fakes import openai_server
from tests.integration.sessions.conftest import KEY

pytestmark = pytest.mark.kernel

COPY = values.SessionKey("web", thread="copy")
REWRITTEN = "open('d/f', 'w').write('newer')\nopen('g', 'w').close()"


@pytest.fixture
def open_bot(open_bot):
    """Open conversations whose variables are saved."""
    return functools.partial(open_bot, snapshots=settings.Snapshots())


async def _wait_until(condition):
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


async def _save_session(bot, key=KEY):
    """Save a session's variables and files."""
    pool = bot.service.services.hosts.pool
    await pool.save_variables(values.format_key(key))
    # The files are copied afterwards under the same lock, so the copy ends when the lock is free.
    async with pool.snapshots.lock(await pool.workspace(values.format_key(key))):
        return


def _join_output(reply):
    return "".join(
        output.text for output in reply.contents("output") if isinstance(output, values.Text)
    )


async def _list_requests(bot, key=KEY):
    turns = await bot.service.queries.history(key)
    return [turn.record.request for turn in turns if turn.record.request]


async def test_a_copy_has_variables_files_and_history_and_shares_nothing(open_bot):
    script = [openai_server.text("It is 1."), openai_server.text("Still 1.")]
    async with open_bot(*script) as bot:
        await bot.run(
            "import os\nx = [1]\nos.makedirs('d')\nopen('d/f', 'w').write('old')\n"
            "open('hole', 'w').close(); os.truncate('hole', 10**9)"
        )
        await bot.ask("What is x?")
        await bot.service.rename(KEY, "Numbers")
        await bot.service.branches.fork(KEY, COPY, "u2")
        show = "print(x, open('d/f').read(), os.stat('hole').st_size)"
        copied = await bot.run(f"x.append(2)\n{show}\nopen('d/f', 'w').write('new')", key=COPY)
        assert _join_output(copied) == "[1, 2] old 1000000000\n"
        assert copied.contents("announcement") == ["Your variables are back."]
        assert _join_output(await bot.run(show)) == "[1] old 1000000000\n"
        assert await _list_requests(bot, COPY) == [
            *(await _list_requests(bot))[:2],
            *(await _list_requests(bot, COPY))[2:],
        ]
        first = (await bot.service.queries.history(COPY))[0]
        assert first.record.person == "u2"
        assert "copy of another" in first.events[1].text
        await bot.ask("And now?", key=COPY)
        contents = [message.get("content") for message in bot.server.requests[-1].messages]
        assert "What is x?" in contents
        (one,) = await bot.service.recent("web", limit=1)
        assert one.record.title == "Numbers (copy)"
        with pytest.raises(errors.BotError, match="already"):
            await bot.service.branches.fork(KEY, COPY, "u2")
        assert _join_output(await bot.run(show, key=COPY)) == "[1, 2] new 1000000000\n"


def _find_last_notice(turns):
    (last_turn,) = [turn for turn in turns if not turn.record.request][-1:]
    return last_turn.events[1].text


async def _branch(bot, key, request, new_key):
    turns = await bot.service.queries.history(key)
    (turn,) = [turn.record.id for turn in turns if turn.record.request == request]
    cells = await bot.service.branches.branch(key, turn, new_key=new_key, person="u2")
    return cells, _find_last_notice(await bot.service.queries.history(new_key))


@pytest.mark.slow
async def test_branches_have_the_state_before_a_turn_and_know_each_other(open_bot, monkeypatch):
    show = "print(x, open('d/f').read(), 'y' in dir())"
    second, third = COPY, values.SessionKey("web", thread="third")
    changed = f"x = 2\ny = 1\n{REWRITTEN}"
    async with open_bot() as bot:
        alternatives = bot.service.branches.list_alternatives
        await bot.run("import os\nos.mkdir('d')\nopen('d/f', 'w').write('old')\nx = 1")
        await _save_session(bot)
        await bot.run(changed)
        await _save_session(bot)
        await bot.run(show)
        # Edited, and once more where that was done; both are alternatives to the same turn.
        cells, notice = await _branch(bot, KEY, changed, second)
        assert (cells, "as they were before" in notice) == ((), True)
        reply = await bot.run("print(os.listdir())\n" + show, key=second)
        assert _join_output(reply) == "['d']\n1 old False\n"
        assert reply.contents("announcement") == ["Your variables are back."]
        await _branch(bot, second, "print(os.listdir())\n" + show, third)
        assert _join_output(await bot.run(show, key=third)) == "1 old False\n"
        assert _join_output(await bot.run(show)) == "2 newer True\n"
        for at, key in enumerate((KEY, second, third)):
            (one,) = await alternatives(key)
            assert (one.index, one.keys) == (at, (KEY, second, third))
        # Of too many, the session's own is among those that are left.
        with monkeypatch.context() as patched:
            patched.setattr(session_copies, "_MAX_ALTERNATIVES", 2)
            assert KEY in (await alternatives(KEY))[0].keys
        assert set(await bot.service.branches.list_branches(second)) == {KEY, second, third}
        # What ran no code since is as it is now, and what was copied finds its alternatives.
        fourth = values.SessionKey("web", thread="fourth")
        await _branch(bot, third, show, fourth)
        assert len((await alternatives(fourth))[0].keys) == 4
        await bot.service.delete(second)
        assert [len(one.keys) for one in await alternatives(KEY)] == [3]
        # A copy is no branch.
        fifth = values.SessionKey("web", thread="fifth")
        await bot.service.branches.fork(KEY, fifth, "u2")
        assert (
            await alternatives(fifth),
            len(await bot.service.branches.list_branches(fifth)),
        ) == (
            (),
            1,
        )
        with pytest.raises(errors.BotError, match="was deleted, or is too old"):
            await bot.service.branches.branch(KEY, 10**9, new_key=COPY, person="u2")


@pytest.mark.slow
async def test_a_branch_whose_variables_are_not_kept_names_the_code_to_run_again(open_bot):
    async with open_bot(snapshots=settings.Snapshots(checkpoints=0)) as bot:
        await bot.run("x = 1\nopen('f', 'w').write('old')")
        await bot.run("1 / 0")
        await bot.run("x = 2")
        cells, notice = await _branch(bot, KEY, "x = 2", COPY)
        assert (cells, "runs again" in notice) == (("x = 1\nopen('f', 'w').write('old')",), True)
        assert _join_output(
            await bot.run("import os\nprint('x' in dir(), os.listdir())", key=COPY)
        ) == ("False ['f']\n")
        cells, notice = await _branch(bot, KEY, cells[0], values.SessionKey("web", thread="b"))
        assert (cells, "without variables" in notice) == ((), True)


@pytest.mark.slow
async def test_code_too_long_to_be_asked_for_again_is_left_out_of_a_branch_and_said(open_bot):
    long = "y = 1  # " + "long " * 20_000
    script = [openai_server.code(long), openai_server.text("Done.")]
    kept = settings.Snapshots(checkpoints=0)
    model = {"answer_tokens": 10_000}
    async with open_bot(*script, snapshots=kept, model=model) as bot:
        await bot.run("x = 1")
        await bot.ask("Make y")
        await bot.run("x = 2")
        cells, notice = await _branch(bot, KEY, "x = 2", COPY)
        assert cells == ("x = 1",)
        assert "Of the code, 1 piece cannot run again" in notice


async def test_the_last_turn_is_taken_back_with_variables_files_and_words(open_bot):
    async with open_bot() as bot:
        await bot.run("x = 1\nfor name in 'fh': open(name, 'w').write('old')")
        await _save_session(bot)
        await bot.run(
            "import os\nx = 2\nopen('f', 'w').write('newer')\nos.remove('h')\nos.mkdir('h')\n"
            "open('h/g', 'w').close()"
        )
        taken_back = await bot.service.branches.undo(KEY)
        assert (taken_back.request[:9], taken_back.missed_runs) == ("import os", 0)
        show = "print(x, open('f').read(), open('h').read(), 'os' in dir())"
        reply = await bot.run(show)
        assert _join_output(reply) == "1 old old False\n"
        assert reply.contents("announcement") == ["Your variables are back."]
        assert await _list_requests(bot) == [
            "x = 1\nfor name in 'fh': open(name, 'w').write('old')",
            show,
        ]
        # What was shown was no change, and goes as well; then the very first turn.
        await bot.service.branches.undo(KEY)
        await bot.service.branches.undo(KEY)
        assert (
            _join_output(await bot.run("import os\nprint('x' in dir(), os.listdir())"))
            == "False []\n"
        )
        assert len(await _list_requests(bot)) == 1


async def test_files_that_are_written_through_memory_are_taken_back(open_bot):
    async with open_bot() as bot:
        await bot.run(
            "import mmap, os\nopen('f', 'wb').write(b'0')\n"
            "mapped = mmap.mmap(os.open('f', os.O_RDWR), 1)\nmapped[0] = ord('1')"
        )
        # A page that is changed already is changed again without a new time of the file, until the
        # machine has written it to the disk.
        for digit in "234":
            await asyncio.sleep(0.1)
            await bot.run(f"mapped[0] = ord('{digit}')")
        await bot.service.branches.undo(KEY)
        assert _join_output(await bot.run("print(open('f').read())")) == "3\n"
        # No file is mapped any more, so files that do not change are copied once.
        workspace = await bot.service.services.hosts.pool.workspace(values.format_key(KEY))
        for _ in range(2):
            await asyncio.sleep(0.1)
            await bot.run("1")
        newest, before = sorted(workspace.checkpoints.glob("*.json"), key=os.path.getmtime)[-2:]
        assert (
            json.loads(newest.read_text())["copy_name"]
            == json.loads(before.read_text())["copy_name"]
        )


@pytest.mark.slow
async def test_a_copy_of_variables_has_them_and_so_has_its_own_copy(open_bot):
    async with open_bot() as bot:
        await bot.run("x = ['text']; large = bytearray(9_000_000)")
        await bot.service.branches.fork(KEY, COPY, "u2")
        await bot.run("x.append(len(large))", key=COPY)
        third = values.SessionKey("web", thread="third")
        await bot.service.branches.fork(COPY, third, "u2")
        assert _join_output(await bot.run("print(x)", key=third)) == "['text', 9000000]\n"


@pytest.mark.slow
async def test_code_that_begins_at_once_after_other_code_can_be_undone(open_bot, monkeypatch):
    # By nothing else is anything saved in this test.
    monkeypatch.setattr(snapshots, "_MIN_IDLE_SECONDS", 600.0)
    async with open_bot(kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=600)) as bot:
        for number in range(4):
            await bot.run(f"x = {number}")
        pool = bot.service.services.hosts.pool
        saving = asyncio.create_task(pool.save_variables(values.format_key(KEY)))
        await asyncio.sleep(0)
        await bot.run("x = 4")
        await saving
        for _ in range(2):
            assert (await bot.service.branches.undo(KEY)).missed_runs == 0
            assert pool.kernels.get(values.format_key(KEY)) is None
        assert _join_output(await bot.run("print(x)")) == "2\n"
        # Where it takes too long, the state before that is gone back to, and that is said.
        monkeypatch.setattr(session_forks, "_MAX_WAIT_SECONDS", 0.0)
        await bot.run("x = 5")
        await bot.run("x = 6", id="2")
        edited = await bot.run("print(x)", id="2", is_edit=True)
        assert _join_output(edited) == "6\n"
        cells, notice = await _branch(bot, KEY, "x = 6", COPY)
        assert (cells, "shortly before" in notice) == (("print(x)", "x = 5"), True)
        reply = await bot.run("print(x)\nx = 5", key=COPY)
        assert _join_output(reply) == "2\n"
        await bot.service.branches.undo(KEY)
        taken_back = await bot.service.branches.undo(KEY)
        assert (taken_back.request, taken_back.missed_runs) == ("x = 6", 2)
        reply = await bot.run("print(x)")
        assert _join_output(reply) == "2\n"
        (sentence,) = reply.contents("announcement")
        assert "before the last 2 pieces of code ran" in sentence


@pytest.mark.slow
async def test_what_a_host_took_back_is_recorded_though_the_database_is_away(
    open_bot, lock_database
):
    async with open_bot() as bot:
        await bot.run("x = 1")
        await _save_session(bot)
        await bot.run("x = 2")
        await lock_database.when_free()
        await bot.service.branches.undo(KEY)
        lock_database.unlock()
        reply = await bot.run("print(x)")
        assert _join_output(reply) == "1\n"
        assert await _list_requests(bot) == ["x = 1", "print(x)"]


@pytest.mark.slow
async def test_a_copy_that_was_not_made_leaves_nothing_and_takes_nothing_from_others(
    open_bot, monkeypatch
):
    async with open_bot() as bot:
        hosts = bot.service.services.hosts
        await bot.run("open('f', 'w').write('mine')")
        await bot.run("open('f', 'w').write('of others')", key=COPY)
        with pytest.raises(errors.SessionExistsError):
            await bot.service.branches.fork(KEY, COPY, "u2")
        assert _join_output(await bot.run("print(open('f').read())", key=COPY)) == "of others\n"
        new, fork = values.SessionKey("web", thread="new"), hosts.fork

        async def unheard(*keys, **more):
            await fork(*keys, **more)
            raise errors.KernelError

        monkeypatch.setattr(hosts, "fork", unheard)
        with pytest.raises(errors.KernelError):
            await bot.service.branches.fork(KEY, new, "u2")
        assert await (await hosts.workspace(values.format_key(new))).list() == ()


async def test_without_a_checkpoint_nothing_is_changed_and_that_is_said(open_bot):
    snapshots = settings.Snapshots(checkpoints=0)
    async with open_bot(snapshots=snapshots) as bot:
        with pytest.raises(errors.BotError, match="nothing in this conversation"):
            await bot.service.branches.undo(KEY)
        await bot.run("x = 1")
        with pytest.raises(errors.BotError, match="nothing was changed"):
            await bot.service.branches.undo(KEY)
        assert _join_output(await bot.run("print(x)")) == "1\n"
        await bot.service.reset(KEY)
        with pytest.raises(errors.BotError, match="There is nothing to undo"):
            await bot.service.branches.undo(KEY)


LARGE = "open('large', 'wb').write(bytes(3_000_000))"
ODD = "open('f', 'w').close(); os.link('f', 'g')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "flaw"), [(LARGE, "more than 2.86 MiB"), (ODD, "it has several names")]
)
async def test_variables_are_taken_back_and_why_files_are_not_is_said(open_bot, make, flaw):
    kept = settings.Snapshots(bytes=4 * 2_999_999)
    async with open_bot(snapshots=kept) as bot:
        await bot.run(f"import os\nx = 1\nopen('h', 'w').write('old')\n{make}")
        await _save_session(bot)
        await bot.run("x = 2\nopen('h', 'w').write('newer')", id="2")
        cells, notice = await _branch(bot, KEY, "x = 2\nopen('h', 'w').write('newer')", COPY)
        assert (cells, "Variables are as they were before" in notice, flaw in notice) == (
            (),
            True,
            True,
        )
        assert _join_output(await bot.run("print(x, open('h').read())", key=COPY)) == "1 newer\n"
        # Who corrects a word expects that nothing stays as the mistake left it.
        await bot.run("print(x)", id="2", is_edit=True)
        await bot.service.branches.undo(KEY)
        taken_back = await bot.service.branches.undo(KEY)
        assert flaw in taken_back.files_notice
        assert _join_output(await bot.run("print(x, open('h').read())")) == "1 newer\n"


@pytest.mark.slow
async def test_a_file_that_cannot_be_copied_is_named_in_a_copy_and_in_a_branch(open_bot):
    async with open_bot(snapshots=settings.Snapshots(checkpoints=0)) as bot:
        await bot.run(f"import os\nx = 1\n{ODD}")
        await bot.run("x = 2")
        await bot.service.branches.fork(KEY, COPY, "u2")
        notice = _find_last_notice(await bot.service.queries.history(COPY))
        assert "it has several names" in notice
        _, notice = await _branch(bot, KEY, "x = 2", values.SessionKey("web", thread="b"))
        assert "runs again" in notice
        assert "it has several names" in notice


async def test_code_that_goes_on_in_the_background_changes_nothing_that_was_taken_back(open_bot):
    async with open_bot() as bot:
        await bot.run("x = 1\nopen('f', 'w').write('old')")
        await _save_session(bot)
        await bot.run(
            "import subprocess\n"
            "subprocess.Popen('while :; do echo newer > f; echo > more; done', shell=True)"
        )
        await bot.service.branches.undo(KEY)
        show = "import os\nprint(open('f').read(), os.listdir())"
        assert _join_output(await bot.run(show)) == "old ['f']\n"


async def test_while_something_runs_neither_copy_nor_way_back_is_made(open_bot):
    async with open_bot() as bot:
        begun = asyncio.create_task(bot.run("print('on', flush=True)\nimport time\ntime.sleep(60)"))
        await _wait_until(lambda: bot.service.is_busy(KEY))
        branches = bot.service.branches
        told = await asyncio.gather(
            branches.undo(KEY), branches.fork(KEY, COPY, "u"), return_exceptions=True
        )
        assert ["still running here" in str(one) for one in told] == [True, True]
        await bot.service.stop(KEY)
        await begun
        assert await bot.service.queries.history(COPY) == ()


async def test_an_edited_message_runs_on_the_state_before_it(open_bot):
    async with open_bot() as bot:
        await bot.run("x = [1]", id="1")
        await _save_session(bot)
        await bot.run("x.append(2)", id="2")
        edited = await bot.run("x.append(3)\nprint(x)", id="2", is_edit=True)
        assert _join_output(edited) == "[1, 3]\n"
        # What would lose a variable, or is not the last any more, runs on what there is.
        await bot.run("gen = (i for i in x)", id="3")
        await _save_session(bot)
        await bot.run("next(gen)", id="4")
        lossy = await bot.run("print(next(gen))", id="4", is_edit=True)
        assert _join_output(lossy) == "3\n"
        late = await bot.run("print(x)", id="1", is_edit=True)
        assert _join_output(late) == "[1, 3]\n"
        assert await _list_requests(bot) == [
            "x = [1]",
            "x.append(3)\nprint(x)",
            "gen = (i for i in x)",
            "next(gen)",
            "print(next(gen))",
            "print(x)",
        ]


@pytest.mark.slow
async def test_cells_that_made_what_was_not_kept_are_found(open_bot):
    async with open_bot() as bot:
        await bot.run("x = 1")
        with pytest.raises(errors.BotError, match="Nothing to rebuild"):
            await bot.service.branches.find_lost_cells(KEY)
        await bot.run("gen = (i for i in range(3))")
        await bot.run("y = 2\nif y:\n    other = iter([].__iter__, 1); gen = (i for i in range(4))")
        await bot.run("%time gen")
        await _save_session(bot)
        pool = bot.service.services.hosts.pool
        pool.kernels[values.format_key(KEY)].kill_with_reason(values.Ending.STOPPED, "It ended.")
        await pool.kernels[values.format_key(KEY)].provisioner.ended.wait()
        (cell,) = await bot.service.branches.find_lost_cells(KEY)
        assert cell.startswith("y = 2")
        assert _join_output(await bot.run(f"{cell}\nprint(next(gen), x)")) == "0 1\n"
