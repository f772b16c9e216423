"""Pictures reach models that can see, few and small, and the others hear of them in words."""

import itertools
import json
import struct

import pytest

from interpreter_bot import errors, values
from interpreter_bot.agent import chat_messages, picture_selection, transcripts
from interpreter_bot.agent.loops import OutcomeKind
from tests.fakes import openai_server as server
from tests.unit.agent import scripts

PROTOCOLS = pytest.mark.parametrize(
    "protocol", ["auto", "chat", "fenced", "responses", "anthropic"]
)
WORDS = "A picture was shown to the person (png 640x480)."
BLIND = [
    (400, "Invalid content type. image_url is only supported by certain models."),
    (404, "No endpoints found that support image input"),
    (422, "Input should be a valid string: content must be a string"),
    (500, "image input is not supported - hint: you may need to provide the mmproj"),
]


def drawn(number=0, size=(640, 480)):
    """Draw a picture, of which only the head is true."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", *size)
    return values.Image(mime="image/png", data=head + b"picture %d" % number)


def plotted(number=0, **more):
    return [drawn(number, **more)], scripts.OK


@PROTOCOLS
async def test_plots_of_earlier_turns_are_seen_again(protocol):
    replies = [server.code("1"), server.text("a"), server.text("b")]
    if protocol == "fenced":
        replies[0] = server.text("```python\n1\n```")
    async with scripts.open_turn(replies, plotted(), protocol=protocol) as turn:
        await turn.run()
        turn.transcript.add_user_message("and what is in the plot?")
        await turn.run()
        for request in turn.server.requests[1:]:
            assert server.decode_pictures(request.body) == [drawn().data]
        assert WORDS in json.dumps(turn.server.requests[2].body)


@PROTOCOLS
async def test_pictures_that_people_send_are_seen(protocol):
    async with scripts.open_turn([server.text("A cat.")], protocol=protocol) as turn:
        seen = chat_messages.Picture("image/png", drawn().data, "cat.png")
        turn.transcript.add_user_message("What is this?", [seen])
        await turn.run()
        (request,) = turn.server.requests
        assert server.decode_pictures(request.body) == [drawn().data]
        assert "The file 'cat.png' as a picture." in json.dumps(request.body)


@pytest.mark.parametrize(
    ("protocol", "status", "words"),
    [
        *((protocol, *BLIND[0]) for protocol in ("auto", "fenced", "anthropic")),
        *((protocol, *one) for one in BLIND for protocol in ("chat", "responses")),
    ],
)
async def test_a_server_that_refuses_pictures_is_sent_words(protocol, status, words):
    replies = [server.code("1"), server.text("a"), server.code("2"), server.text("b")]
    if protocol == "fenced":
        replies[::2] = [server.text(f"```python\n{code}\n```") for code in "12"]
    async with scripts.open_turn(
        replies, plotted(), plotted(1), protocol=protocol, server_options={"blind": (status, words)}
    ) as turn:
        assert (await turn.run()).text.endswith("a")
        turn.transcript.add_user_message("again")
        assert (await turn.run()).text.endswith("b")
        # Once for each plot, for another may be accepted.
        assert len(turn.server.refusals) == 2
        assert WORDS in json.dumps(turn.server.requests[-1].body)
    assert len(turn.observer.contents("announcement")) == 2
    assert turn.waits == []


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_a_picture_that_cannot_be_read_makes_no_model_blind(protocol):
    replies = [server.code("1"), server.text("a"), server.text("b")]
    async with scripts.open_turn(
        replies, plotted(), protocol=protocol, server_options={"decodes": True}
    ) as turn:
        assert (await turn.run()).text == "a"
        turn.transcript.add_user_message("again")
        assert (await turn.run()).text == "b"
        assert len(turn.server.refusals) == 1
    assert not picture_selection.has_pictures(turn.transcript.entries)


async def test_outputs_are_words_to_a_server_that_takes_nothing_else():
    calls = [("run_code", '{"code": "1"}'), ("run_code", '{"code": "2"}')]
    replies = [server.Reply(calls=calls, finish="tool_calls"), server.code("3"), server.text("ok")]
    async with scripts.open_turn(
        replies,
        *(plotted(number) for number in range(3)),
        protocol="responses",
        server_options={"text_outputs": True},
    ) as turn:
        assert (await turn.run()).text == "ok"
        assert turn.server.refusals == []
        kinds = [one.get("type", one.get("role")) for one in turn.server.requests[-1].messages]
        seen = server.decode_pictures(turn.server.requests[-1].body)
    step = ["function_call"] * 2 + ["function_call_output"] * 2 + ["user"]
    assert kinds == ["user", *step, "function_call", "function_call_output", "user"]
    assert seen == [drawn(number).data for number in range(3)]


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_old_pictures_go_several_at_a_time(protocol):
    steps = 22
    replies = [server.code(f"print({n})") for n in range(steps)] + [server.text("ok")]
    async with scripts.open_turn(replies, *map(plotted, range(steps)), protocol=protocol) as turn:
        await turn.run()
        turn.transcript.add_user_message("again")
        stored = [chat_messages.to_dict(one) for one in turn.transcript.entries]
        sent = [one.messages for one in turn.server.requests]
        counts = [len(server.decode_pictures(one.body)) for one in turn.server.requests]
        last = server.decode_pictures(turn.server.requests[-1].body)
        words = json.dumps(turn.server.requests[-1].body).count("not shown here any more")
        held = [one for one in picture_selection.list_pictures(turn.transcript.entries) if one.data]
    broken = sum(
        json.dumps(after[: len(before)]) != json.dumps(before)
        for before, after in itertools.pairwise(sent)
    )
    assert counts[:9] == list(range(9))
    assert all(5 <= count <= 8 for count in counts[9:])
    assert broken == 4
    assert last == [drawn(number).data for number in range(16, 22)]
    assert len(held) == 8
    assert words == 16
    # After a restart, when only the newest were loaded, the very same are shown.
    contents = {one.sha256: one.data for one in held}
    again = transcripts.Transcript(
        picture_selection.restore_contents(list(map(chat_messages.from_dict, stored)), contents)
    )
    assert [
        one.data
        for one in picture_selection.list_pictures(picture_selection.keep_newest(again.entries))
    ] == last


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_a_picture_is_viewed_when_the_model_wants_to_and_what_it_reads_there_is_believed(
    protocol,
):
    replies = [
        server.call("view_image", {"name": "/mnt/data/bill.png"}),
        server.text("It is 73.2."),
    ]
    question = "[The person sent the file 'bill.png'; it is at /mnt/data/bill.png.] How much?"
    async with scripts.open_turn(
        replies, files={"bill.png": drawn().data}, protocol=protocol, question=question
    ) as turn:
        outcome = await turn.run()
        bodies = [one.body for one in turn.server.requests]
    assert [server.decode_pictures(body) for body in bodies] == [[], [drawn().data]]
    assert "The file 'bill.png' as a picture." in json.dumps(bodies[1])
    assert outcome.text == "It is 73.2."


async def test_what_is_no_picture_is_said():
    calls = [("view_image", f'{{"name": "{name}"}}') for name in ("a.csv", "none.png")]
    replies = [server.Reply(calls=calls, finish="tool_calls"), server.text("ok")]
    async with scripts.open_turn(replies, files={"a.csv": b"a,b"}) as turn:
        await turn.run()
        told = [one["content"] for one in turn.server.requests[1].messages[-2:]]
    assert told[0].startswith("['a.csv' is no picture that can be shown to you")
    assert told[1].startswith("[This could not be done: There is no such file")


def tool_names(request):
    return [one.get("function", one)["name"] for one in request.body["tools"]]


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_a_blind_model_is_offered_no_look_at_a_picture(protocol):
    replies = [server.call("view_image", {"name": "a.png"}), server.text("ok")]
    async with scripts.open_turn(
        replies, files={"a.png": drawn().data}, protocol=protocol, can_see_images=False
    ) as turn:
        await turn.run()
        assert "view_image" not in tool_names(turn.server.requests[0])
        assert "no tool named 'view_image'" in json.dumps(turn.server.requests[1].messages)


async def test_large_plots_are_scaled_down_elsewhere_and_the_others_left_alone():
    shown = [drawn(1, size=(9000, 9000)), drawn(2), drawn(3, size=(0, 5))]
    shown.append(values.Image(mime="image/gif", data=b"GIF89a..."))
    async with scripts.open_turn(
        [server.code("1"), server.text("ok")], (shown, scripts.OK)
    ) as turn:
        await turn.run()
        seen = server.decode_pictures(turn.server.requests[-1].body)
    assert turn.environment.scaled_pictures == [shown[0].data, shown[2].data, shown[3].data]
    assert seen == [scripts.JPEG, shown[1].data, scripts.JPEG, scripts.JPEG]


async def test_pictures_that_cannot_be_scaled_cost_no_output():
    shown = [values.Text("stdout", "forty-two"), drawn(1, size=(9000, 9000)), drawn(2)]
    async with scripts.open_turn(
        [server.code("1"), server.text("ok")], (shown, scripts.OK)
    ) as turn:

        async def refuse(contents):
            raise errors.KernelStartError

        turn.environment.scale_pictures = refuse
        await turn.run()
        request = turn.server.requests[-1]
    assert "forty-two" in json.dumps(request.messages)
    assert server.decode_pictures(request.body) == [shown[2].data]


def test_only_the_last_pictures_of_an_execution_are_shown_and_none_that_is_none():
    preview = drawn(7).data
    outputs = [drawn(number) for number in range(3)]
    outputs.append(values.Image(mime="image/svg+xml", data=b"<svg/>", preview=preview))
    outputs.append(values.Html(html=b"<p>", preview=preview))
    outputs.append(values.Image(mime="image/png", data=b"text"))
    outputs.append(values.Image(mime="image/png", data=drawn().data + b"x" * 5_000_000))
    assert picture_selection.find_pictures(outputs, 3) == (drawn(2).data, preview, preview)
    assert picture_selection.find_pictures(outputs, 0) == ()
    assert picture_selection.find_pictures([], 4) == ()


@pytest.mark.parametrize(
    ("mime", "data"),
    [
        ("image/png", b"\xff\xd8\xff"),
        ("image/png", drawn(size=(1569, 10)).data),
        ("image/png", drawn().data + b"x" * 1024 * 1024),
        ("image/png", b"\x89PNG\r\n\x1a\n"),
        ("image/jpeg", b"\xff\xd8\xff" + b"x" * 1024 * 1024),
        ("image/jpeg", b"GIF89a"),
        ("image/webp", b"RIFF....WEBP"),
        ("text/html", b"<p>"),
    ],
)
def test_what_a_sandbox_claims_to_have_scaled_is_looked_at_from_outside(mime, data):
    assert picture_selection.accept_scaled_picture(mime, data) is None


async def test_a_refused_picture_ends_in_no_loop():
    refusals = [server.failure(400, "image: no")] * 5
    async with scripts.open_turn([server.code("1"), *refusals], plotted()) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.UNREACHABLE
