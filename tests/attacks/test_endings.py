"""The seven endings, each on a real kernel."""

import asyncio
import os
import signal
import sys
import time

import pytest

from interpreter_bot import errors, values
from interpreter_bot.wording import run_words
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
# A busy machine may take its time; what matters is that no timer of seconds is involved.
DEATH_SECONDS = 1.0


async def test_ok_shows_the_result(run):
    ran = await run("6 * 7")

    assert ran.finished == values.Finished(Ending.OK, ran.finished.seconds)
    assert ran.plain == "42"


async def test_error_keeps_variables(run):
    ran = await run("x = 5\n1 / 0")

    assert ran.ending is Ending.ERROR
    assert [error.name for error in ran.errors] == ["ZeroDivisionError"]
    assert not ran.finished.kernel_lost
    assert (await run("x")).plain == "5"


@pytest.mark.parametrize(
    "code", ["1 +", "raise SystemExit(3)", "exit()", "raise KeyboardInterrupt"]
)
async def test_what_only_looks_like_an_end_keeps_the_kernel(run, code):
    await run("x = 5")
    ran = await run(code)

    assert ran.ending in {Ending.OK, Ending.ERROR}
    assert (await run("x")).plain == "5"


@pytest.mark.parametrize(
    "wait",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import subprocess; subprocess.run(['/bin/sleep', '60'])",
    ],
    ids=["busy", "asleep", "in a child"],
)
async def test_timeout_stops_in_time_and_keeps_variables(bot, run, wait):
    ran = await run(f"x = 5\n{wait}", seconds=0.5)

    assert ran.ending is Ending.TIMED_OUT
    assert "0.5 s" in ran.finished.reason
    assert not ran.finished.kernel_lost
    assert ran.finished.seconds >= 0.5
    assert (await run("x")).plain == "5"


SWALLOWED = {
    "caught": "while True:\n    try: time.sleep(1)\n    except BaseException: pass",
    "ignored": "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\ntime.sleep(60)",
    "held up in C": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("how", SWALLOWED)
async def test_swallowed_interrupt_is_followed_by_a_kill(bot, run, how):
    ran = await run(harness.code(SWALLOWED[how]), seconds=0.5)

    assert ran.ending is Ending.TIMED_OUT
    # The regular expression engine looks for signals now and then.
    assert ran.finished.kernel_lost or how == "held up in C"
    assert (await run("1 + 1")).plain == "2"


async def test_lost_kernel_is_announced_once(bot, run, session_key):
    await run("import os; os._exit(0)")

    kernel = await bot.pool.take(session_key())

    assert "without the variables" in kernel.loss_notice


# How a kernel dies: (code, what the reason says).
CRASHES = {
    "exit": ("os._exit(7)", "exit code 7"),
    "success": ("os._exit(0)", "exit code 0"),
    "segmentation fault": ("ctypes.string_at(0)", "segmentation fault"),
    "abort": ("os.abort()", "abort"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed"),
    "bus error": ("os.kill(os.getpid(), signal.SIGBUS)", "SIGBUS"),
    "illegal instruction": ("os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
    "real time signal": ("os.kill(os.getpid(), 40)", "signal 40"),
    "another program": ("os.execv('/bin/true', ['true'])", "exit code 0"),
}
if sys.version_info < (3, 12):
    # Later Pythons raise RecursionError.
    CRASHES["deep recursion"] = (
        # Not by `repr`, which looks through all that is being shown at every level.
        "sys.setrecursionlimit(1 << 30)\nx, y = [], []\n"
        "for _ in range(300_000): x, y = [x], [y]\nx == y",
        "segmentation fault",
    )


@pytest.mark.parametrize("how", CRASHES)
async def test_crash_is_told_with_its_cause(run, how):
    code, reason = CRASHES[how]

    ran = await run(harness.code(code))

    assert ran.ending is Ending.CRASHED
    assert reason in ran.finished.reason
    assert ran.finished.kernel_lost


async def test_death_amid_an_execution_is_noticed_at_once(bot, run, session_key):
    code = "import time; print('begun', flush=True); time.sleep(60)"
    delays = []
    for _ in range(3):
        outputs = []
        execution = asyncio.create_task(run(code, seconds=60, outputs=outputs))
        # What is still on its way when the kernel dies may be lost with it.
        assert await harness.wait_until(lambda: outputs)  # noqa: B023 - it is called here.
        pid = bot.pids(session_key())[1]
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        ran = await execution
        delays.append(time.monotonic() - killed)
        assert ran.ending is Ending.CRASHED
        assert ran.word == "begun"

    assert min(delays) < DEATH_SECONDS


MANY = """
import os, time
told, tell = os.pipe()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        x = bytearray(os.urandom(1 << 20)) * {share}
        os.write(tell, b".")
        time.sleep(3)
        os._exit(0)
    children.append(child)
statuses = [os.waitpid(child, 0)[1] for child in children]
print(statuses.count(9), "killed")
"""


async def test_memory_of_many_processes_is_told_apart_from_a_crash(bot, run):
    share = bot.limits.memory_bytes // harness.MIB // 4

    # On a busy machine, eight processes that fill memory take longer than code of this bot may run.
    ran = await run(MANY.format(share=share), seconds=60)

    if ran.finished.kernel_lost:
        assert ran.ending is Ending.OUT_OF_MEMORY
        assert "memory" in ran.finished.reason
    else:
        assert ran.notices == [run_words.partly_out_of_memory(bot.limits.memory_bytes)]
        assert int(ran.text.split()[0]) > 0
    assert (await run("1 + 1")).plain == "2"


async def test_stop_keeps_variables_and_says_why(bot, run, session_key, files):
    begun = (await files()).directory / "begun"
    code = "x = 5\nopen('begun', 'x').close()\nimport time; time.sleep(60)"
    execution = asyncio.create_task(run(code, seconds=60))
    assert await harness.wait_until(begun.exists)
    await (await bot.pool.take(session_key())).stop("Somebody said stop.")
    ran = await execution

    assert ran.ending is Ending.STOPPED
    assert ran.finished.reason == "Somebody said stop."
    assert (await run("x")).plain == "5"


async def test_dead_kernel_refuses(bot, run, session_key):
    await run("1")
    kernel = await bot.pool.take(session_key())
    os.kill(bot.pids(session_key())[1], signal.SIGKILL)
    assert await harness.wait_until(lambda: not kernel.is_alive)

    finished = await kernel.execute("1 + 1", show=print)

    assert finished.ending is Ending.REFUSED
    assert finished.reason
    assert finished.kernel_lost


async def test_input_makes_the_round_trip(run):
    asked = []

    async def ask(request):
        asked.append(request)
        return "Ada"

    ran = await run(
        "import getpass\nname = input('Name? ')\nword = getpass.getpass('Word? ')\n"
        "print('Hello,', name, word)",
        ask=ask,
    )

    assert ran.word == "Hello, Ada Ada"
    assert asked == [values.InputRequested("Name? ", False), values.InputRequested("Word? ", True)]


async def test_input_waits_on_a_persons_time_not_the_codes(run):
    async def ask(_):
        await asyncio.sleep(1)
        return "late"

    ran = await run("print(input())", ask=ask, seconds=0.5)

    assert ran.ending is Ending.OK
    assert ran.word == "late"


async def test_input_nobody_answers_ends_the_execution(run):
    async def ask(_):
        await asyncio.sleep(60)

    ran = await run("x = 5\ninput()", ask=ask, seconds=1)

    assert ran.ending is Ending.STOPPED
    assert "nobody answered" in ran.finished.reason
    assert (await run("x")).plain == "5"


async def test_questions_about_doors_are_few_and_one_nobody_answers_ends_the_execution(
    bot, run, files, session_key
):
    asked = []

    async def ask(request):
        asked.append(request)
        if len(asked) > 100:
            raise errors.UnansweredError
        return "no"

    await run("import time\nx = 5")
    kernel = bot.pool.kernels[session_key()]
    # What has not begun yet does not hear an interrupt.
    begun, code = (await files()).directory / "begun", "open('begun', 'x').close(); time.sleep(30)"
    running = asyncio.create_task(run(code, ask=ask))
    assert await harness.wait_until(begun.exists)
    begun.unlink()
    question = values.InputRequested("Allow it?", False)
    for _ in range(100):
        assert await kernel.ask(question) == "no"
    with pytest.raises(errors.KernelError):
        await kernel.ask(question)
    assert len(asked) == 100
    await kernel.stop()
    await running

    running = asyncio.create_task(run(code, ask=ask))
    assert await harness.wait_until(begun.exists)
    with pytest.raises(errors.UnansweredError):
        await kernel.ask(question)
    ran = await running

    assert ran.ending is Ending.STOPPED
    assert "nobody answered" in ran.finished.reason
    assert (await run("x")).plain == "5"


async def test_input_without_anybody_to_ask_is_an_error(run):
    ran = await run("input()")

    assert ran.ending is Ending.ERROR
    assert "EOFError" in {error.name for error in ran.errors}
