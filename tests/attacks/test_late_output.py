"""What runs on after its execution is over, and what is printed then."""

import pytest

from interpreter_bot import values

pytestmark = [
    pytest.mark.attack,
    pytest.mark.any_user,
    pytest.mark.asyncio(loop_scope="session"),
]
Ending = values.Ending


async def test_replaced_standard_output_is_replaced_for_the_code_alone(run):
    await run("import io, sys\nsys.stdout = sys.stderr = sys.__stdout__ = io.StringIO()")

    ran = await run("print('unheard')\n1 + 1")

    assert ran.ending is Ending.OK
    assert ran.plain == "2"


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
async def test_late_output_does_not_land_in_a_later_execution(run, by):
    first = await run("import threading, time\n" + LATE[by])
    assert first.ending is Ending.OK

    second = await run("import time\nfor _ in range(10):\n    time.sleep(0.1)\n    print('x')")

    assert second.ending is Ending.OK
    assert "late" not in second.plain
    assert second.text.split() == ["x"] * 10
