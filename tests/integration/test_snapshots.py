"""Variables of real kernels that come back in the next one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import pools, snapshot_retention, snapshots
from interpreter_bot.kernels.files import safe_open
from tests import machine, waiting

pytestmark = pytest.mark.kernel
VARIABLES = machine.session_variables_path()


@pytest.fixture
def opened(tmp_path, short_path):
    """Open a pool whose kernels import nothing; always on the same data."""

    def open_pool(*, freeze_seconds=1000.0, max_starts=0, end_seconds=1.5, **snapshots):
        return pools.Pool.open(
            settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=freeze_seconds),
                snapshots=settings.Snapshots(**snapshots),
                paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            ),
            max_starts=max_starts,
            end_seconds=end_seconds,
        )

    return open_pool


async def run(kernel, code):
    outputs: list[values.Output] = []
    finished = await kernel.execute(code, show=outputs.append)
    assert finished.ending is values.Ending.OK, outputs
    return "".join(output.plain for output in outputs)


async def saved(pool, key="a"):
    """Let an idle session be saved, as its monitor does; return what is kept."""
    await pool.save_variables(key)
    return await pool.saved_variables(key)


async def expired(pool, **limits):
    """Delete old snapshots; returns how many."""
    everyone = await pool.stored_workspaces()
    return await snapshot_retention.expire(
        pool.snapshots, everyone, pool.locks, **{"max_days": 30, **limits}
    )


async def crash(pool, *keys):
    """Let sessions' kernels end without being saved."""
    for key in keys:
        pool.kernels[key].kill_with_reason(values.Ending.STOPPED, "It crashed.")
        await pool.kernels[key].provisioner.ended.wait()


async def lose(pool, key="a"):
    """Let a session's kernel end as in a crash, and return its next one."""
    await crash(pool, key)
    return await pool.take(key)


async def kill(pool, *keys):
    """Leave sessions, or all of a pool, without an orderly end, as a bot does that is killed."""
    await crash(pool, *(keys or list(pool.kernels)))
    await pool.reap()


def is_saving():
    """Return whether any session is being saved."""
    return any(task.get_name() == "save variables" for task in asyncio.all_tasks())


BEGIN = """
import collections, threading, os
os.makedirs("sub", exist_ok=True); os.chdir("sub")
limit = 50
def above(values): return [one for one in values if one > limit]
counts = collections.Counter("aab")
holder = {"counts": counts}
running = (i for i in range(3))
"""
CHECK = "limit = 1; above([1, 2]), holder['counts'] is counts, os.getcwd(), 'running' in dir()"
BACK = "([2], True, '/mnt/data/sub', False)"


@pytest.mark.slow
async def test_options_of_pandas_come_back(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "import pandas; pandas.set_option('display.max_rows', 7)")
        await saved(pool)
        restored = await lose(pool)
        assert await run(restored, "pandas.get_option('display.max_rows')") == "7"


@pytest.mark.namespaces
async def test_an_idle_session_is_saved_and_then_frozen(opened):
    async with opened(freeze_seconds=0.3) as pool:
        kernel = await pool.take("a")
        await run(kernel, BEGIN)
        used = kernel.last_used
        await waiting.until(lambda: kernel.is_frozen)
        told = await pool.saved_variables("a")
        assert (told.kernel_id, told.run_count) == (kernel.id, kernel.run_count) == (kernel.id, 1)
        assert [name for name, _ in told.lost] == ["running"]
        assert kernel.last_used == used, "saving is no use of the session"
        assert await run(kernel, "limit, next(running)") == "(50, 0)"
        second = await lose(pool)
        assert second.restored_variables == told
        assert not second.restore_notice
        assert await run(second, CHECK) == BACK
        assert await run(second, "1 / above([3])[0]") != ""


async def test_nothing_is_saved_twice_and_what_is_deleted_stays_so(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "x = 1; y = 2")
        first = await saved(pool)
        assert (await saved(pool)).saved_at == first.saved_at
        await run(kernel, "del x")
        second = await saved(pool)
        assert (first.names, second.names, second.saved_at > first.saved_at) == (
            ("x", "y"),
            ("y",),
            True,
        )
        await run(kernel, "del y")
        assert await saved(pool) is None
        kernel = await lose(pool)
        assert await run(kernel, "'x' in dir(), 'y' in dir()") == "(False, False)"


async def test_variables_survive_an_orderly_end_of_the_bot(opened):
    async with opened(end_seconds=30.0) as pool:
        for key in "abc":
            await run(await pool.take(key), BEGIN)
    async with opened() as pool:
        for key in "abc":
            assert await run(await pool.take(key), CHECK) == BACK
        await pool.release("a")
        assert await pool.saved_variables("a") is None
        assert await run(await pool.take("a"), "'limit' in dir()") == "False"


OLD = """
class Stays: x = 1
class Goes: pass
class Changes:
    def __init__(self): self.a = 1
"""
NEW = """
class Stays: x = 'new'
class Changes:
    def __setstate__(self, state): raise KeyError('b')
"""
USING = f"""
import sys
sys.path.insert(0, "/mnt/data")
open("/mnt/data/library.py", "w").write({OLD!r})
import library
stays, goes, changes, plain = library.Stays(), library.Goes(), library.Changes(), [1, 2]
both = [goes, plain]
open("/mnt/data/library.py", "w").write({NEW!r})
"""


async def test_a_reboot_keeps_variables_and_a_new_release_names_what_it_cannot_read(
    opened, short_path
):
    async with opened() as pool:
        await run(await pool.take("a"), USING)
        assert (await saved(pool)).lost == ()
        await kill(pool)
    # All that does not lie on a disk; no process, group or number of this boot is asked for.
    shutil.rmtree(short_path)
    async with opened() as pool:
        kernel = await pool.take("a")
        assert await run(kernel, "stays.x, plain, 'goes' in dir()") == "('new', [1, 2], False)"
        lost = dict(kernel.restored_variables.lost)
        assert lost.keys() == {"both", "goes", "changes"}
        assert ("KeyError" in lost["changes"], "Goes" in lost["both"]) == (True, True)
        assert "both" in lost["goes"]
        for name in lost:
            assert f"{name} (" in kernel.restore_notice


async def test_the_end_of_the_bot_waits_no_longer_than_said(opened):
    slow = "class Slow:\n def __reduce__(self):\n  while True: pass\ngood = 1\nslow = Slow()"
    async with opened() as pool:
        for key in "abcd":
            await run(await pool.take(key), slow)
        begun = time.monotonic()
        await pool.snapshots.save_all(pool.kernels.values(), 5.0)
        assert time.monotonic() - begun < 30
        assert not is_saving()
        kinds = [await pool.saved_variables(key) for key in "abcd"]
        assert any(one is not None and one.names == ("Slow", "good") for one in kinds)


@pytest.mark.slow
async def test_an_older_state_says_how_much_older_it_is(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "x = 1")
        await saved(pool)
        await run(kernel, "x = 2")
        await run(kernel, "x = 3")
        second = await lose(pool)
        assert (second.restored_variables.kernel_id, second.restored_variables.run_count) == (
            kernel.id,
            1,
        )
        assert await run(second, "x") == "1"


async def test_who_comes_back_while_a_session_is_saved_does_not_wait_for_that(opened):
    slow = "class Slow:\n def __reduce__(self):\n  while True: pass\nslow = Slow()\ngood = 1"
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, f"x = bytearray(50_000_000)\n{slow}")
        variables = (await pool.workspace("a")).variables
        saving = asyncio.create_task(pool.save_variables("a"))
        await waiting.until(lambda: any(variables.glob("*/variables")))
        # Left alone it would take a minute.
        async with asyncio.timeout(30):
            assert await run(kernel, "good") == "1"
            await saving
        assert await pool.saved_variables("a") is None
        assert not list(variables.glob("*/variables")), "what was begun is deleted"


@pytest.mark.slow
async def test_a_session_that_grows_too_large_by_being_saved_is_not_ended_for_it(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "class Slow:\n def __reduce__(self):\n  while True: pass\nslow = Slow()")
        saving = asyncio.create_task(pool.save_variables("a"))
        variables = (await pool.workspace("a")).variables
        await waiting.until(lambda: any(variables.glob("*/variables")))
        assert pool.snapshots.interrupt(pool.kernels["a"])
        await saving
        assert not pool.snapshots.interrupt(pool.kernels["a"])
        assert not any(variables.iterdir()), "the next check would end it for what is left"
        assert await run(kernel, "type(slow).__name__") == "'Slow'"


@pytest.mark.first_case
@pytest.mark.parametrize("swapped", [True, False])
async def test_a_snapshot_of_another_session_is_not_used(opened, tmp_path, swapped):
    async with opened(end_seconds=30.0) as pool:
        for key in "ab":
            await run(await pool.take(key), f"name = {key!r}")
        own = [(await pool.workspace(key)).variables.parent for key in "ab"]
    for name in ("variables", "snapshot") if swapped else ():
        (own[0] / name).rename(tmp_path / "other")
        (own[1] / name).rename(own[0] / name)
        (tmp_path / "other").rename(own[1] / name)
    async with opened() as pool:
        found = await run(await pool.take("a"), "globals().get('name')")
        assert found == ("" if swapped else "'a'")


@pytest.mark.first_case
@pytest.mark.parametrize(
    "damage",
    [
        lambda own: (own / "manifest.json").write_text("x" * 300_000),
        lambda own: (own / "manifest.json").write_text("[" * 100_000),
        lambda own: (own / "manifest.json").write_text(json.dumps({"format": 4, "kept": 3})),
        lambda own: (own / "manifest.json").unlink(),
        lambda own: shutil.rmtree(own),
        lambda own: shutil.rmtree(own.parent),
        lambda own: (own / "index.json").write_text("[]"),
        lambda own: (own / "index.json").write_text('{"records": [{}]}'),
        lambda own: (own / "index.json").unlink(),
        lambda own: (own / "variables").write_bytes(b"\xff" * 4096),
        lambda own: (own / "variables").write_bytes(b""),
    ],
)
async def test_damaged_files_cost_the_variables_and_nothing_else(opened, damage):
    async with opened() as pool:
        await run(await pool.take("a"), "x = 1")
        await saved(pool)
        [own] = (await pool.workspace("a")).variables.glob("[0-9]*")
        await kill(pool)
        damage(own)
        kernel = await pool.take("a")
        assert await run(kernel, "globals().get('x')") == ""


async def test_variables_of_another_version_are_said_not_to_be_restored_once(opened):
    async with opened() as pool:
        await run(await pool.take("a"), "x = 1")
        await saved(pool)
        [own] = (await pool.workspace("a")).variables.glob("[0-9]*")
        await kill(pool)
        (own / "manifest.json").write_text(json.dumps({"format": 2, "kept": ["x"]}))
        assert await expired(pool) == 0
        kernel = await pool.take("a")
        assert "cannot be read" in kernel.restore_notice
        assert await run(kernel, "globals().get('x')") == ""
        await run(kernel, "y = 2")
        assert (await saved(pool)).names == ("y",)
        kernel = await lose(pool)
        assert (kernel.restore_notice, await run(kernel, "y")) == ("", "2")


LIE = """
import json, os
def lie(_, number, *__):
    own = f"PLACE/{number}"
    os.makedirs(own)
    told = {"format": 4, "problem": "", "is_disk_full": False, "blobs": {}}
    told |= {"kept": ["\\u202e<@U1>" * 50], "kept_count": 1}
    told |= {"partly": {}, "partly_saved_count": 0, "lost_count": 10**6}
    told["lost"] = {"../../x": "why\\x1b[2J\\nyes", "long" * 200: "words " * 160}
    with open(own + "/manifest.json", "w") as file:
        json.dump(told, file)
get_ipython().answer_bot = lie
""".replace("PLACE", VARIABLES)


async def test_a_kernel_that_writes_its_own_manifest_harms_only_itself(opened):
    async with opened() as pool:
        await run(await pool.take("a"), LIE)
        told = await saved(pool)
        assert told.kept_count == 1
        assert told.lost[0] == ("../../x", "why yes")
        assert max(len(name) + len(why) for name, why in told.lost) <= 160
        assert not {"\u202e", "\n"} & set("".join(told.names))
        kernel = await lose(pool)
        assert "could not be restored" in kernel.restore_notice
        assert await run(kernel, "1 + 1") == "2"


@pytest.mark.first_case
@pytest.mark.parametrize(
    "prepared",
    [
        "os.symlink('/etc', 'blobs')",
        "[os.mkdir(f'{n}') for n in range(100)]",
        "os.makedirs('blobs'); os.chmod('blobs', 0)",
        "open('blobs', 'w').close()",
    ],
)
async def test_what_code_puts_beside_what_is_saved_is_deleted_or_harmless(opened, prepared):
    async with opened() as pool:
        await run(await pool.take("a"), f"import os\nos.chdir({VARIABLES!r})\n{prepared}")
        await saved(pool)
        variables = (await pool.workspace("a")).variables
        assert {one.name for one in variables.iterdir()} <= {"blobs"} | {
            one.name for one in variables.glob("[1-9]?????????????*")
        }
        assert os.stat("/etc/passwd")
        await pool.forget("a")
        assert not variables.exists()


@pytest.mark.first_case
@pytest.mark.parametrize("target", ["/etc/passwd", "/", "/nowhere"])
@pytest.mark.parametrize("name", ["", "/manifest.json"])
async def test_a_link_in_the_directory_of_snapshots_tells_nothing_of_the_host(
    opened, monkeypatch, name, target
):
    monkeypatch.setattr(snapshots, "_SAVE_SECONDS", 0.5)
    code = f"""
import os
shell = get_ipython()
def link(_, number, *__):
    if {name!r}: os.mkdir(f"{VARIABLES}/{{number}}")
    os.symlink("{target}", f"{VARIABLES}/{{number}}{name}")
shell.answer_bot = link
"""
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, code)
        assert await saved(pool) is None
        assert await run(kernel, "1") == "1"


async def test_code_that_says_that_the_saving_is_over_does_not_go_on_there(opened):
    code = f"""
import glob, os, signal, time
class Goes:
    def __reduce__(self):
        open("/mnt/data/ticks", "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        number = max(glob.glob("{VARIABLES}/[0-9]*"))
        open(number + "/manifest.json", "w").close()
        while True:
            time.sleep(0.05)
            with open("/mnt/data/ticks", "a") as ticks: ticks.write(".")
goes = Goes()
"""
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, code)
        await pool.save_variables("a")
        ticks = (await pool.workspace("a")).directory / "ticks"
        before = ticks.stat().st_size
        await asyncio.sleep(0.3)
        assert ticks.stat().st_size == before
        assert await run(kernel, "1") == "1"


async def test_code_that_fills_the_directory_of_snapshots_is_stopped(opened):
    fill = f"with open('{VARIABLES}/x', 'wb') as f:\n for _ in range(300): f.write(bytes(10**6))"
    async with opened(bytes=20_000_000) as pool:
        kernel = await pool.take("a")
        shown: list[values.Output] = []
        finished = await kernel.execute(fill + "\nwhile True: pass", show=shown.append, seconds=20)
        assert "folder that is reserved for saved variables" in finished.reason, finished


async def test_what_a_lost_kernel_left_there_is_deleted_at_once(opened):
    async with opened() as pool:
        await run(await pool.take("a"), "x = 1")
        told = await saved(pool)
        fill = f"import os\nopen('{VARIABLES}/x', 'wb').write(bytes(10**6))"
        await run(pool.kernels["a"], fill)
        variables = (await pool.workspace("a")).variables
        assert (variables / "x").exists()
        await kill(pool, "a")
        assert not (variables / "x").exists()
        assert (await pool.take("a")).restored_variables == told
        await run(pool.kernels["a"], fill)
        await lose(pool)
        assert not (variables / "x").exists()


async def test_a_kernel_that_cannot_know_what_is_saved_does_not_replace_it(opened, monkeypatch):
    async with opened() as pool:
        await run(await pool.take("a"), "x = 1")
        told = await saved(pool)

        def fail(*_):
            raise errors.WorkspaceError

        with monkeypatch.context() as broken:
            broken.setattr(safe_open, "open_file", fail)
            kernel = await lose(pool)
        assert "kept for Python's next start" in kernel.restore_notice
        await run(kernel, "x = 2")
        assert await saved(pool) == told
        assert await run(await lose(pool), "x") == "1"


TRAP = """
import os
class Trap:
    def __setstate__(self, state):
        if os.path.exists("/mnt/data/armed"): os._exit(1)
trap = Trap(); trap.a = 1
"""


async def test_variables_that_end_python_when_they_are_read_are_given_up_the_second_time(opened):
    async with opened() as pool:
        await run(await pool.take("a"), TRAP)
        await saved(pool)
        await (await pool.workspace("a")).put("armed", _chunks(b"x"))
        kernel = await lose(pool)
        assert "kept for Python's next start" in kernel.restore_notice
        await run(kernel, "new = 1")
        good = (await pool.saved_variables("a")).saved_at
        assert (await saved(pool)).saved_at == good, "it is not replaced"
        kernel = await lose(pool)
        assert "were deleted" in kernel.restore_notice
        assert await run(kernel, "'trap' in dir(), 'new' in dir()") == "(False, False)"
        assert (await saved(pool)) is None
        await run(kernel, "new = 1")
        assert (await saved(pool)).names == ("new",)


async def test_a_restore_that_is_late_replaces_nothing(opened, monkeypatch):
    monkeypatch.setattr(snapshots, "_SAVE_SECONDS", 3.0)
    slow = """
import os, time
class Slow:
    def __setstate__(self, state):
        if os.path.exists("/mnt/data/armed"): time.sleep(60)
        self.__dict__.update(state)
slow = Slow(); slow.a = 1
"""
    async with opened() as pool:
        await run(await pool.take("a"), slow)
        told = await saved(pool)
        await (await pool.workspace("a")).put("armed", _chunks(b"x"))
        kernel = await lose(pool)
        assert "could not be restored" in kernel.restore_notice
        await run(kernel, "new = 1; os = __import__('os'); os.unlink('/mnt/data/armed')")
        kernel = await lose(pool)
        assert kernel.restored_variables == told
        assert await run(kernel, "slow.a") == "1"


BOT = """
import asyncio, pathlib, sys
from interpreter_bot import settings
from interpreter_bot.kernels import pools, snapshot_retention

async def main():
    bot = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=0.2),
        paths=settings.Paths(data=pathlib.Path(sys.argv[1]), runtime=pathlib.Path(sys.argv[2])),
    )
    async with pools.Pool.open(bot) as pool:
        kernel = await pool.take("a")
        await kernel.execute("x = 1", show=print)
        while not kernel.is_frozen:
            await asyncio.sleep(0.01)
        # While code runs nothing is saved, however long it is until this is killed.
        code = "x = 2\\nprint('ready')\\nimport time; time.sleep(60)"
        await kernel.execute(code, show=lambda output: print(output.text, end="", flush=True))

asyncio.run(main())
"""


@pytest.mark.namespaces
async def test_a_killed_bot_gives_back_what_its_sessions_had_when_they_were_idle(
    opened, tmp_path, short_path
):
    bot = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BOT, str(tmp_path / "data"), str(short_path)),
        env={**os.environ, "INTERPRETER_BOT_SNAPSHOTS__BYTES": "2147483648"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert await bot.stdout.readline() == b"ready\n"
    bot.kill()
    await bot.wait()
    async with opened() as pool:
        kernel = await pool.take("a")
        assert kernel.restored_variables.run_count == 1
        assert await run(kernel, "x") == "1"


@pytest.mark.slow
async def test_old_snapshots_go_and_too_many_the_least_recently_used_first(opened):
    async with opened() as pool:
        for key in "abcd":
            await run(await pool.take(key), f"{key} = bytearray(1_000_000)")
            await saved(pool, key)
        own = {key: (await pool.workspace(key)).variables.parent for key in "abcd"}
        await kill(pool, *"abc")
        day = 86_400
        for key, days in (("a", 40), ("b", 3), ("c", 1), ("d", 0)):
            os.utime(own[key] / "snapshot", (time.time() - days * day,) * 2)
        assert await expired(pool, max_days=0) == 0
        assert await expired(pool) == 1
        left = [key for key in own if (own[key] / "snapshot").exists()]
        assert left == ["b", "c", "d"]
        share = 2_500_000 / shutil.disk_usage(own["a"]).total
        assert await expired(pool, max_disk_share=share) == 1
        assert await pool.saved_variables("b") is None
        assert await pool.saved_variables("c") is not None


@pytest.mark.slow
async def test_what_a_look_at_variables_interrupts_is_saved_later(opened):
    slow = (
        "import time\n"
        "class Slow:\n"
        "    def __reduce__(self):\n"
        "        time.sleep(1)\n"
        "        return Slow, ()\n"
        "slow, x = Slow(), 7"
    )
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, slow)
        saving = asyncio.create_task(pool.save_variables("a"))
        await waiting.until(is_saving)
        await asyncio.sleep(0.3)
        await kernel.execute("1", show=lambda _: None, is_bot_code=True)
        await saving
        assert kernel.run_count_at_save == 0
        await pool.save_variables("a")
        assert kernel.run_count_at_save == 1
        assert await run(await lose(pool), "print(x)") == "7\n"


@pytest.mark.slow
async def test_what_comes_after_a_look_at_variables_when_its_turn_comes_is_saved_later(
    opened, monkeypatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    slow = "class Slow:\n def __reduce__(self):\n  while True: pass\nslow = Slow()"
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "x = 7")
        # Another session has the only place for a while.
        await run(await pool.take("b"), slow)
        other = asyncio.create_task(pool.save_variables("b"))
        await waiting.until(is_saving)
        saving = asyncio.create_task(pool.save_variables("a"))
        await waiting.until(lambda: kernel.run_count_at_attempt == kernel.run_count)
        code = "__import__('time').sleep(0.3)"
        look = asyncio.create_task(kernel.execute(code, show=lambda _: None, is_bot_code=True))
        await waiting.until(lambda: kernel.is_busy)
        assert pool.snapshots.interrupt(pool.kernels["b"])
        await asyncio.gather(saving, look, other)
        assert (await saved(pool)).names == ("x",)


async def test_who_is_never_idle_is_saved_though_saving_takes_long(opened, monkeypatch):
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "one = 1")
        now = time.monotonic() + 2.0
        with monkeypatch.context() as clock:
            # Until it is put back nothing is awaited, so nobody else sees this time.
            clock.setattr(time, "monotonic", lambda: now)
            # One says nothing: the process may have been stopped in the middle of it.
            kernel.record_save_duration(now - 9.0)
            assert pool.snapshots.is_due(pool.kernels["a"])
            kernel.record_save_duration(now - 9.0)
            assert not pool.snapshots.is_due(pool.kernels["a"])
            now += 20 * 9.0 - 1.0
            assert not pool.snapshots.is_due(pool.kernels["a"])
            now += 1.0
            assert pool.snapshots.is_due(pool.kernels["a"])


async def _chunks(data):
    yield data


@pytest.mark.slow
async def test_starts_that_people_wait_for_come_before_saving(opened, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    async with opened(max_starts=1) as pool:
        kernel = await pool.take("a")
        await run(kernel, "x = 1")
        starts = [asyncio.create_task(pool.take(f"other {number}")) for number in range(50)]
        await waiting.until(lambda: kernel.run_count_at_attempt == kernel.run_count)
        assert sum(not start.done() for start in starts) <= 3
        await asyncio.gather(*starts)


async def test_a_full_disk_leaves_what_was_saved_before_and_is_said_once(opened):
    # As the kernel of the machine says it, in a sandbox of root and of a plain user alike.
    full = """
import errno, os
write = os.write
def refuse(file, part):
    if len(part) > 1_000_000: raise OSError(errno.ENOSPC, "full")
    return write(file, part)
os.write = refuse
large = os.urandom(2_000_000); small = 2
"""
    async with opened() as pool:
        kernel = await pool.take("a")
        await run(kernel, "small = 1; large = bytes(3_000_000)")
        assert set((await saved(pool)).names) == {"small", "large"}
        await run(kernel, full)
        await pool.save_variables("a")
        assert kernel.run_count_at_save == 1
        assert "machine's disk is full" in await run(kernel, "small += 1")
        await pool.save_variables("a")
        assert await run(kernel, "print(small)") == "3\n"
        assert await run(await lose(pool), "print(small, len(large))") == "1 3000000\n"
        kernel = pool.kernels["a"]
        await run(kernel, "large = 0; small = 5")
        assert (await saved(pool)).lost == ()
        # What a type's own methods cannot write is no disk of ours.
        own = """
class Own:
    def __reduce__(self):
        return list, (), None, self.items()
    def items(self):
        yield 1
        raise OSError(28, "its own")
one = Own()
"""
        await run(kernel, own)
        held = await saved(pool)
        assert ({"small", "Own"} <= {*held.names}, [*dict(held.lost)]) == (True, ["one"])
