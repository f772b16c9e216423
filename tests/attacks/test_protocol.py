"""Kernels that speak the protocol against the bot: forged, broken and endless messages."""

import pytest

from interpreter_bot import values
from tests.attacks import raw_messages

pytestmark = [
    pytest.mark.attack,
    pytest.mark.any_user,
    pytest.mark.asyncio(loop_scope="session"),
]
Ending = values.Ending


@pytest.mark.parametrize(
    "way", ["publish('stream', stream)", "raw(iopub, header('stream'), about, {}, stream)"]
)
async def test_what_a_kernel_says_of_itself_is_heard(run, way):
    ran = await run(raw_messages.PRELUDE + way)

    assert ran.word == "forged", "or what follows would prove nothing"


async def test_idle_alone_ends_nothing(run):
    ran = await run(
        raw_messages.PRELUDE
        + "publish('status', {'execution_state': 'idle'})\ntime.sleep(0.5)\n"
        # Whoever says that he is idle may lose what is still under way when the reply comes.
        + "print('after', flush=True)\ntime.sleep(0.3)"
    )

    assert ran.ending is Ending.OK
    assert ran.word == "after"
    assert ran.finished.seconds >= 0.5


async def test_reply_alone_ends_nothing_before_its_idle(run):
    ran = await run(
        raw_messages.PRELUDE + "reply('execute_reply', {'status': 'ok'})\ntime.sleep(0.5)\nprint(1)"
    )

    assert ran.ending is Ending.OK
    assert ran.word == "1"


async def test_code_that_runs_on_behind_a_forged_end_is_not_heard_in_the_next(run):
    first = await run(
        raw_messages.PRELUDE
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
        raw_messages.PRELUDE
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
        raw_messages.PRELUDE
        + f"reply('execute_reply', {content})\n"
        + "publish('status', {'execution_state': 'idle'})\ntime.sleep(0.2)"
    )

    assert ran.ending in endings


# What must not be heard, though it is sent by one who has the key.
UNHEARD = {
    "a foreign parent": "publish('stream', stream, parent={'header': {'msg_id': 'another'}})",
    "no parent": "publish('stream', stream, parent={})",
    "a parent of an earlier request": "old = dict(about, msg_id=about['msg_id'][:-1] + 'x')\n"
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
    "a parent that is large": "raw(iopub, header('stream'), about | LARGE, {}, stream)",
    "a header that is large": "raw(iopub, header('stream') | LARGE, about, {}, stream)",
    "metadata that are large": "raw(iopub, header('stream'), about, LARGE, stream)",
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
    large = "LARGE = {'x': 'x' * 70_000}\n"

    ran = await run(
        raw_messages.PRELUDE + large + UNHEARD[what] + "\ntime.sleep(0.05)\nprint('after')"
    )

    assert ran.ending is Ending.OK, ran
    assert ran.plain == "after\n"


INTRICATE = {
    "lists in lists": "b'[' * 200_000",
    "objects in objects": """b'{"a":' * 200_000""",
    "a long number": """b'{"text": ' + b'9' * 65 + b'}'""",
    "a number of a million digits": """b'{"text": ' + b'9' * 1_000_000 + b'}'""",
    "a long fraction": """b'{"text": 0.' + b'9' * 65 + b'}'""",
}


@pytest.mark.parametrize("what", INTRICATE)
async def test_message_that_is_too_intricate_is_not_heard_but_missed(run, what):
    sending = f"raw(iopub, header('stream'), about, {{}}, {INTRICATE[what]})"
    ran = await run(f"{raw_messages.PRELUDE}{sending}\ntime.sleep(0.05)\nprint('after')")

    assert ran.ending is Ending.OK
    assert (ran.word, ran.notices) == (
        "after",
        ["Part of the output was left out, because it had too many or too long values."],
    )


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
    ran = await run(raw_messages.PRELUDE + ODD[what] + "\ntime.sleep(0.05)\nprint('after')")

    assert ran.ending is Ending.OK, ran
    assert ran.text.endswith("after\n")
    assert sum(len(o.plain) for o in ran.outputs) < bot.limits.output_bytes
    assert not {"\x1b", "\x00", "\x9b", "\ud800"} & set(ran.plain)
