"""What runs on after its execution is over, and what is printed then."""

import asyncio

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words

pytestmark = [
    pytest.mark.attack,
    pytest.mark.any_user,
    pytest.mark.asyncio(loop_scope="session"),
]
Ending = values.Ending


async def test_replaced_standard_output_is_replaced_for_its_own_execution_alone(run):
    replaced = await run(
        "import io, sys\nsys.stdout = sys.stderr = sys.__stdout__ = io.StringIO()\n"
        "print('unheard')\n1 + 1"
    )
    assert (replaced.ending, replaced.plain) == (Ending.OK, "2")

    ran = await run("print('heard')")

    assert (ran.ending, ran.plain) == (Ending.OK, "heard\n")


LATE = {
    "a thread": "def f():\n    time.sleep(0.5)\n    print('late')\n"
    "threading.Thread(target=f).start()",
    "a thread by descriptor": "import os\nfd = os.dup(1)\ndef f():\n    time.sleep(0.5)\n"
    "    os.write(fd, b'late')\nthreading.Thread(target=f).start()",
    "a child": "import subprocess\nsubprocess.Popen(['/bin/sh', '-c', 'sleep 0.5; echo late'])",
    "a fork": "import os\nif os.fork() == 0:\n    time.sleep(0.5)\n    os.write(1, b'late')\n"
    "    os._exit(0)",
    "a timer": "threading.Timer(0.5, print, ['late']).start()",
    "a pool": "import concurrent.futures as c\n"
    "c.ThreadPoolExecutor().submit(lambda: (time.sleep(0.5), print('late')))",
    "a display": "threading.Timer(0.5, display, ['late']).start()",
}


@pytest.mark.parametrize("by", LATE)
async def test_late_output_is_shown_by_the_execution_that_runs_then(run, by):
    first = await run("import threading, time\n" + LATE[by])
    assert first.ending is Ending.OK

    second = await run("import time\nfor _ in range(10):\n    time.sleep(0.1)\n    print('x')")

    assert second.ending is Ending.OK
    assert second.plain.count("late") == 1
    assert second.plain.replace("'late'", "").replace("late", "").split() == ["x"] * 10


@pytest.mark.parametrize("by", LATE)
async def test_output_between_executions_is_shown_by_the_next(run, by):
    await run("import threading, time\n" + LATE[by])
    await asyncio.sleep(1)

    second = await run("print(' x')")

    assert second.plain.replace("'late'", "late").split() == ["late", "x"]


async def test_a_program_without_end_between_executions_keeps_its_end_alone(run):
    await run("import subprocess\nendless = subprocess.Popen(['/usr/bin/yes'])")
    await asyncio.sleep(0.5)

    second = await run("endless.kill()\nendless.wait()\nprint('x')")

    assert second.ending is Ending.OK
    assert second.text.endswith("x\n")
    notices = " ".join(second.notices)
    assert run_words.OUTPUT_CUT in notices or "left out" in notices
