"""Kernels that speak the protocol against the bot: forged, broken and endless messages."""

import gc
import os
import pathlib

import pytest

from interpreter_bot import values
from tests.attacks import boxes

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
Ending = values.Ending
# What an attacker has: the key, both sockets, the request and the identity of the bot.
SPEAK = """
import json, threading, time, uuid, zmq
kernel = get_ipython().kernel
session, iopub, shell = kernel.session, kernel.iopub_socket, kernel.shell_stream.socket
parent = kernel.get_parent("shell")
ident = kernel._shell_parent_ident.get()

def publish(kind, content, parent=parent):
    session.send(iopub, kind, content, parent=parent, ident=b"topic")

def reply(kind, content, parent=parent):
    session.send(shell, kind, content, parent=parent, ident=ident)

def raw(socket, *parts, prefix=(b"topic",), signature=None):
    parts = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in parts]
    signature = session.sign(parts) if signature is None else signature
    socket.send_multipart([*prefix, b"<IDS|MSG>", signature, *parts])

def header(kind):
    return {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "s", "username": "u",
            "date": "2026-01-01T00:00:00Z", "version": "5.3"}

about = {"msg_id": parent["header"]["msg_id"]}
stream = {"name": "stdout", "text": "forged"}
"""


@pytest.mark.parametrize(
    "way", ["publish('stream', stream)", "raw(iopub, header('stream'), about, {}, stream)"]
)
async def test_what_a_kernel_says_of_itself_is_heard(run, way):
    ran = await run(SPEAK + way)

    assert ran.word == "forged", "or what follows would prove nothing"


async def test_idle_alone_ends_nothing(run):
    ran = await run(
        SPEAK + "publish('status', {'execution_state': 'idle'})\ntime.sleep(0.5)\nprint('after')"
    )

    assert ran.ending is Ending.OK
    assert ran.word == "after"
    assert ran.finished.seconds >= 0.5


async def test_reply_alone_ends_nothing_before_its_idle(run):
    ran = await run(SPEAK + "reply('execute_reply', {'status': 'ok'})\ntime.sleep(0.5)\nprint(1)")

    assert ran.ending is Ending.OK
    assert ran.word == "1"


async def test_code_that_runs_on_behind_a_forged_end_is_not_heard_in_the_next(run):
    first = await run(
        SPEAK
        + "reply('execute_reply', {'status': 'ok'})\n"
        + "publish('status', {'execution_state': 'idle'})\n"
        + "time.sleep(1)\nprint('late')"
    )
    assert first.ending is Ending.OK

    second = await run("print('mine')")

    assert second.ending is Ending.OK
    assert second.text == "mine\n"


async def test_code_that_never_ends_behind_a_forged_end_is_stopped_by_the_next(run):
    await run(
        SPEAK
        + "reply('execute_reply', {'status': 'ok'})\n"
        + "publish('status', {'execution_state': 'idle'})\n"
        + "while True: pass"
    )

    second = await run("print('mine')", seconds=1)

    assert second.ending in {Ending.TIMED_OUT, Ending.OK}
    third = await run("print('third')", seconds=2)
    assert third.text == "third\n"


# Forged replies: what the execution may come to by them.
REPLIES = {
    "an error that was none": ("{'status': 'error'}", {Ending.ERROR}),
    "an abort": ("{'status': 'aborted'}", {Ending.REFUSED}),
    "no status": ("{}", {Ending.REFUSED}),
    "a status of another type": ("{'status': ['ok']}", {Ending.REFUSED}),
    "an invented ending": ("{'status': 'out of memory'}", {Ending.REFUSED}),
    "much besides": ("{'status': 'ok', 'payload': [{}] * 100_000}", {Ending.OK}),
}


@pytest.mark.parametrize("what", REPLIES)
async def test_forged_reply_is_an_ending_of_its_own_session(run, what):
    content, endings = REPLIES[what]

    ran = await run(
        SPEAK
        + f"reply('execute_reply', {content})\n"
        + "publish('status', {'execution_state': 'idle'})\ntime.sleep(0.2)"
    )

    assert ran.ending in endings


# What must not be heard, though it is sent by one who has the key.
UNHEARD = {
    "a foreign parent": "publish('stream', stream, parent={'header': {'msg_id': 'another'}})",
    "no parent": "publish('stream', stream, parent={})",
    "a parent of an earlier request": "old = dict(about, msg_id=about['msg_id'][:-1] + '0')\n"
    "raw(iopub, header('stream'), old, {}, stream)",
    "no signature": "raw(iopub, header('stream'), about, {}, stream, signature=b'')",
    "a wrong signature": "raw(iopub, header('stream'), about, {}, stream, signature=b'0' * 64)",
    "a signature of bytes": "raw(iopub, header('stream'), about, {}, stream, signature=b'\\xff')",
    "no delimiter": "iopub.send_multipart([b'topic', b'x', json.dumps(stream).encode()])",
    "a delimiter only": "iopub.send_multipart([b'<IDS|MSG>'])",
    "an empty message": "iopub.send_multipart([b''])",
    "a part too few": "raw(iopub, header('stream'), about, {})",
    "text instead of JSON": "raw(iopub, header('stream'), about, {}, b'forged')",
    "a list as content": "raw(iopub, header('stream'), about, {}, ['forged'])",
    "a header that is a number": "raw(iopub, 5, about, {}, stream)",
    "a header without fields": "raw(iopub, {}, about, {}, stream)",
    "a type that is a list": "raw(iopub, dict(header('stream'), msg_type=[]), about, {}, stream)",
    "an id that is a number": "raw(iopub, dict(header('stream'), msg_id=1), about, {}, stream)",
    "an id without end": "raw(iopub, dict(header('stream'), msg_id='x' * 9999), about, {}, stream)",
    "a parent that is a list": "raw(iopub, header('stream'), [about], {}, stream)",
    "a parent id that is an object": "raw(iopub, header('stream'), {'msg_id': {}}, {}, stream)",
    "invalid UTF-8": "raw(iopub, header('stream'), about, {}, b'{\"text\": \"\\xff\"}')",
    "deep JSON": "raw(iopub, header('stream'), about, {}, b'[' * 200_000)",
    "deep objects": "raw(iopub, header('stream'), about, {}, b'{\"a\":' * 200_000)",
    "a number of a million digits": "raw(iopub, header('stream'), about, {}, b'{\"text\": '"
    " + b'9' * 1_000_000 + b'}')",
    "a text that is a number": "publish('stream', {'name': 'stdout', 'text': 5})",
    "a text that is missing": "publish('stream', {'name': 'stdout'})",
    "an unknown type": "publish('forged', stream)",
    "a comm": "publish('comm_open', {'data': 'forged'})",
    "an input request in public": "publish('input_request', {'prompt': 'forged'})",
    "a reply in public": "publish('execute_reply', {'status': 'forged'})",
    "a display of no object": "publish('display_data', {'data': 'forged'})",
    "a reply of another type": "reply('forged_reply', {'status': 'ok'})",
    "a reply to another": "reply('execute_reply', {'status': 'ok'}, parent={'header': "
    "{'msg_id': 'another'}})",
    "a broken reply": "raw(shell, header('execute_reply'), about, {}, b'{', prefix=ident)",
    "an unsigned reply": "raw(shell, header('execute_reply'), about, {}, {'status': 'error'},"
    " prefix=ident, signature=b'')",
    "a message to nobody": "shell.send_multipart([b'nobody', b'forged'])",
}


@pytest.mark.parametrize("what", UNHEARD)
async def test_broken_or_foreign_message_is_not_heard(run, what):
    ran = await run(SPEAK + UNHEARD[what] + "\ntime.sleep(0.05)\nprint('after')")

    assert ran.ending is Ending.OK, ran
    assert ran.plain == "after\n"


# What is heard, in a form that does no harm.
ODD = {
    "an unknown stream": "publish('stream', {'name': '../../etc', 'text': 'x'})",
    "surrogates": "raw(iopub, header('stream'), about, {}, b'{\"text\": \"\\\\ud800\"}')",
    "control characters": "publish('stream', {'name': 'stdout', 'text': '\\x1b[2J\\x00\\x9b'})",
    "not a number": "raw(iopub, header('display_data'), about, {}, b'{\"data\": {"
    '"application/json": NaN, "text/plain": "x"}}\')',
    "an error without fields": "publish('error', {})",
    "an error of other types": "publish('error', {'ename': 5, 'evalue': [], 'traceback': 'x'})",
    "a traceback of a million lines": "publish('error', {'traceback': ['x'] * 1_000_000})",
    "a picture that is none": "publish('display_data', {'data': {'image/png': 'not base64!'}})",
    "a picture that is a list": "publish('display_data', {'data': {'image/png': ['x'] * 9999}})",
    "a table that is none": "publish('display_data', {'data': "
    "{'application/vnd.interpreter-bot.table+json': {'columns': 5, 'rows': {}}}})",
    "a table without end": "publish('display_data', {'data': "
    "{'application/vnd.interpreter-bot.table+json': {'columns': ['x'] * 9999, "
    "'rows': [['y'] * 9999] * 20, 'row_count': 10**30, 'column_count': -1}}})",
    "many types": "publish('display_data', {'data': {f'a/{n}': 'x' for n in range(50_000)}})",
    "a display id without end": "publish('display_data', {'data': {'text/plain': 'x'}, "
    "'transient': {'display_id': 'x' * 100_000}})",
    "a display id of another type": "publish('update_display_data', {'data': "
    "{'text/plain': 'x'}, 'transient': {'display_id': {}}})",
    "deep data": "x = []\nfor _ in range(400): x = [x]\n"
    "publish('display_data', {'data': {'application/json': x}})",
    "a clear of another type": "publish('clear_output', {'wait': 'x'})",
    "an input request nobody made": "session.send(kernel.stdin_socket, 'input_request', "
    "{'prompt': 'x'}, parent=parent, ident=ident)",
    "a status of another type": "publish('status', {'execution_state': {}})",
}


@pytest.mark.parametrize("what", ODD)
async def test_odd_message_does_no_harm(bot, run, what):
    ran = await run(SPEAK + ODD[what] + "\ntime.sleep(0.05)\nprint('after')")

    assert ran.ending is Ending.OK, ran
    assert ran.text.endswith("after\n")
    assert sum(len(o.plain) for o in ran.outputs) < bot.limits.output_bytes
    assert not {"\x1b", "\x00", "\x9b", "\ud800"} & set(ran.plain)


# What ends in whatever way, but ends: the bot lives, and a new kernel answers.
HOSTILE = {
    "a frame of 20 MB": "iopub.send_multipart([b'x' * 20_000_000])\nprint('after')",
    "a signed message of 20 MB": "publish('stream', dict(stream, text='x' * 20_000_000))",
    "a reply of 20 MB": "shell.send_multipart([*ident, b'x' * 20_000_000])",
    "a million frames": "iopub.send_multipart([b'x'] * 1_000_000)",
    "a million messages": "for _ in range(1_000_000): iopub.send_multipart([b'x'])",
    "a million signed messages": "m = session.serialize(session.msg('stream', stream, parent))\n"
    "for _ in range(1_000_000): iopub.send_multipart([b'x', *m])",
    "a million replies": "m = session.serialize(session.msg('execute_reply', {}, parent))\n"
    "for _ in range(200_000): shell.send_multipart([*ident, *m])",
    "questions without end": "while True: session.send(kernel.stdin_socket, 'input_request', "
    "{'prompt': 'x' * 10_000}, parent=parent, ident=ident)",
    "closed sockets": "import os\nos.closerange(3, 256)\ntime.sleep(5)",
    "a closed shell": "shell.close(linger=0)",
    "a closed publisher": "kernel.iopub_thread.socket.close(linger=0)\nprint('unheard')",
    "a terminated context": "kernel.parent.context.destroy(linger=0)",
    "descriptors swapped": "import os\nfor n in range(3, 40):\n    try: os.dup2(0, n)\n"
    "    except OSError: pass\ntime.sleep(1)",
    "noise on every socket": "import os\nfor n in range(3, 40):\n    try: os.write(n, b'x' * 99)\n"
    "    except OSError: pass\ntime.sleep(0.5)",
    "handlers replaced": "kernel.shell_handlers.clear(); kernel.do_execute = None",
    "a key replaced": "session.key = b'another'",
    "sending replaced": "type(session).send = lambda *_, **__: None",
    "all of ipykernel replaced": "import sys\nfor name in list(sys.modules):\n"
    "    if name.startswith(('ipykernel', 'zmq', 'guest')): del sys.modules[name]\n"
    "kernel.__class__.execute_request = lambda *_: None",
    "an event loop stopped": "import asyncio\nasyncio.get_event_loop().stop()",
    "an event loop held": "import asyncio\nasyncio.get_event_loop().call_soon(time.sleep, 60)",
    "threads that stop the world": "import sys\nsys.setswitchinterval(1000)\n"
    "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()",
    "a fork that goes on": "import os\nif os.fork() == 0: print('child')\n",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_kernel_comes_to_an_end_and_harms_nobody(bot, run, what):
    await run("kept = 5", key="neighbour")

    first = await run(SPEAK + HOSTILE[what], seconds=2)
    await run("print('second')", seconds=0.5)

    assert "forged" * 20_000 not in first.plain
    assert (await run("kept", key="neighbour")).plain == "5"
    await bot.pool.release(next(key for key in bot.keys if key.endswith(f"[{what}] ")))
    assert (await run("1 + 1")).plain == "2"


async def test_flood_of_messages_leaves_no_memory_behind(run):
    def resident():
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    flood = "m = session.serialize(session.msg('stream', dict(stream, text='x' * 10_000), parent))"
    flood += "\nwhile True: iopub.send_multipart([b'x', *m])"
    before = resident()

    ran = await run(SPEAK + flood, seconds=3)

    assert ran.ending in {Ending.TIMED_OUT, Ending.CRASHED, Ending.OUT_OF_MEMORY}
    assert resident() - before < 32 * boxes.MIB


async def test_oversized_message_costs_its_own_execution_only(run):
    lost = await run(SPEAK + "iopub.send_multipart([b'x' * 20_000_000])\nprint('after')")
    assert lost.ending is Ending.OK
    assert lost.notices == ["Some of the output was lost on the way."]

    ran = await run("print('heard')")

    assert ran.word == "heard"
    assert ran.finished.seconds < 1


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


async def test_socket_paths_cannot_be_swapped(bot, run):
    await run("1")
    files = sorted(bot.settings.paths.runtime.rglob("k-*"))
    before = [path.lstat().st_ino for path in files]

    ran = await run(
        boxes.code("""
        for name in os.listdir("/proc/self/fd"):
            try:
                path = socket.socket(fileno=os.dup(int(name))).getsockname()
            except OSError:
                continue
            if isinstance(path, str) and path.startswith("/"):
                attempt(lambda: os.unlink(path))
                attempt(lambda: os.symlink("/tmp/elsewhere", path))
        """)
    )

    assert set(ran.text.split()) <= boxes.REFUSED | boxes.MISSING
    assert ran.word
    assert [path.lstat().st_ino for path in files if path.is_socket()] == before
