"""Output without end or measure: shown in part, with a word about the rest."""

import asyncio
import re
import time

import pytest

from interpreter_bot import values
from interpreter_bot.wording import run_words
from tests.attacks import harness

pytestmark = [
    pytest.mark.attack,
    pytest.mark.any_user,
    pytest.mark.asyncio(loop_scope="session"),
]
Ending = values.Ending
# Whatever is printed, at most this much of it is shown, with a word about the rest.
FLOODS = {
    "standard output": "while True: print('x' * 1000)",
    "standard error": "while True: print('x' * 1000, file=sys.stderr)",
    "descriptor 1": "while True: os.write(1, b'x' * 1000)",
    "descriptor 2": "while True: os.write(2, b'x' * 1000)",
    "a program": "subprocess.run(['/usr/bin/yes'])",
    "many threads": "def f():\n    while True: print('x' * 1000)\n"
    "for _ in range(8): threading.Thread(target=f, daemon=True).start()\ntime.sleep(60)",
    # A busy machine prints fewer of them in the time than are shown: most is there already.
    "single characters": "print('x' * 99_000)\nwhile True: print('x', end='', flush=True)",
    "one large text": "print('x' * (50 << 20)); time.sleep(60)",
    "carriage returns": "while True: print('x' * 100, end='\\r')",
    "escapes": "while True: print('\\x1b[31m' * 1000)",
    "an escape without end": "while True: print('\\x1b]' + 'x' * 1000, end='')",
}


@pytest.mark.parametrize("what", FLOODS)
async def test_endless_output_is_cut_with_a_notice(bot, run, what):
    # Threads wait for one another: on a busy machine they print least.
    ran = await run(harness.code(FLOODS[what]), seconds=3.0 if what == "many threads" else 0.8)

    assert ran.ending in {Ending.TIMED_OUT, Ending.CRASHED}, ran.finished
    assert len(ran.text.encode()) <= bot.limits.output_bytes
    assert "\x1b" not in ran.plain.replace("\x1b[31m", "")
    assert len(ran.outputs) < 20_000
    silent = what in ("escapes", "an escape without end")
    notices = " ".join(ran.notices)
    assert silent or run_words.OUTPUT_CUT in notices or "left out" in notices


async def test_what_was_printed_takes_no_memory(bot, run):
    times = 2 * bot.limits.memory_bytes >> 20
    ran = await run(f"for _ in range({times}): print('x' * (1 << 20))\ntmp = 'whole'")

    assert ran.ending is Ending.OK, ran.finished
    assert len(ran.text.encode()) <= bot.limits.output_bytes


DISPLAYS = {
    "displays": "while True: display('x')",
    "updates": "handle = display('x', display_id=True)\nwhile True: handle.update('y')",
    "clears": "from IPython.display import clear_output\nwhile True: clear_output()",
    "errors": "while True: get_ipython().showtraceback((ValueError, ValueError('x'), None))",
    "results": "while True: sys.displayhook(1)",
}


@pytest.mark.parametrize("what", DISPLAYS)
async def test_displays_without_end_are_bounded(bot, run, what):
    ran = await run(harness.code(DISPLAYS[what]), seconds=0.8)

    assert ran.ending in {Ending.TIMED_OUT, Ending.CRASHED}
    displays = [o for o in ran.outputs if isinstance(o, values.Display) and not o.is_update]
    assert len(displays) <= bot.limits.displays
    assert len(ran.outputs) < 5_000, "what a chat has to carry"


BOMB = """
import json, uuid
kernel = get_ipython().kernel
about = {"msg_id": kernel.get_parent("shell")["header"]["msg_id"]}
header = {"msg_id": uuid.uuid4().hex, "msg_type": "stream"}
parts = [json.dumps(part).encode() for part in (header, about, {})]
parts.append(b"{" + b",".join(b'"%x":1' % number for number in range(1_500_000)) + b"}")
kernel.iopub_socket.send_multipart([b"t", b"<IDS|MSG>", kernel.session.sign(parts), *parts])
print("after")
"""


async def test_a_message_of_a_million_values_is_left_out_and_keeps_nobody_waiting(run):
    await run("1")
    bombing = asyncio.create_task(run(BOMB))
    used = []
    while not bombing.done():
        started = time.thread_time()
        await asyncio.sleep(0.001)
        used.append(time.thread_time() - started)
    ran = await bombing

    assert (ran.ending, ran.word) == (Ending.OK, "after")
    assert ran.notices == [
        "Part of the output was left out, because it had too many or too long values."
    ]
    assert max(used) < 0.3


HUGE = {
    "a huge repr": "class C:\n    def __repr__(self): return 'x' * (30 << 20)\nC()",
    "a huge repr of letters of four bytes": "class C:\n"
    "    def __repr__(self): return '\\U0001f40d' * (8 << 20)\nC()",
    "a huge list": "list(range(10_000_000))",
    "a huge picture": "display({'image/png': 'A' * (14 << 20)}, raw=True)",
    "a huge error": "raise ValueError('x' * (12 << 20))",
    "an error of many lines": "exec('1\\n' * 200_000 + 'raise ValueError(\"\\\\n\" * 1_000_000)')",
    "a repr that recurses": "class C:\n    def __repr__(self): return repr(self)\nC()",
    "a repr that raises": "class C:\n    def __repr__(self): raise SystemExit\nC()",
    "deep recursion": "def f(): f()\nf()",
    "deep JSON": "from IPython.display import JSON\nx = []\nfor _ in range(900): x = [x]\nJSON(x)",
    "a deep error": "def f(n):\n    try: f(n + 1)\n    finally: 1 / 0\nf(0)",
}


# The only thing that may come on top of a bound: one line that says how much is missing.
LEFT_OUT = re.compile(r"\n… [\d,]+ characters left out …\n")
SAID = {
    "a huge repr": LEFT_OUT,
    "a huge repr of letters of four bytes": LEFT_OUT,
    "a huge list": re.compile(r"\.\.\.\]\Z"),
    "a huge picture": re.compile("Too large to be shown"),
    "a huge error": re.compile(r"…\Z"),
    "deep JSON": re.compile("Too large to be shown"),
}


@pytest.mark.parametrize("what", HUGE)
async def test_huge_things_are_shown_in_part_and_keep_the_kernel(bot, run, what):
    await run("kept = 5")

    ran = await run(harness.code(HUGE[what]))

    assert ran.ending in {Ending.OK, Ending.ERROR}, ran.finished
    shown = [LEFT_OUT.sub("", output.plain, count=1) for output in ran.outputs]
    assert sum(map(len, shown)) <= bot.limits.output_bytes
    assert what not in SAID or SAID[what].search(ran.plain), "what is missing is not said"
    assert (await run("kept")).plain == "5"


async def test_thousandth_result_brings_no_warning_and_the_oldest_are_dropped(run):
    # As many as there may be but for a few; older than all that come.
    await run("Out.update({number: number for number in range(-980, 0)})")
    for number in range(40):
        ran = await run(str(number))
        assert ran.plain == str(number)
        assert len(ran.outputs) == 1, ran.outputs

    shown = await run(
        "len(Out) <= 1_001, -980 in Out, Out[max(Out)], get_ipython().history_manager.outputs"
    )
    assert shown.plain == "(True, False, 39, defaultdict(list, {}))"
