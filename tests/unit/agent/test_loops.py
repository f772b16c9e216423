"""A turn, through the real client, against a server that speaks the real protocol."""

import asyncio
import decimal
import json

import pydantic
import pytest

from interpreter_bot import errors, events, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    model_calls,
    model_errors,
    ports,
    transcripts,
)
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.agent.loops import OutcomeKind
from tests.fakes import openai_server as server
from tests.unit.agent import scripts

PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "chat", "responses", "anthropic"])


@PROTOCOLS
async def test_code_is_run_and_its_output_answered(protocol):
    replies = [server.code("print(6*7)", "Let me see. "), server.text("It is ", "42.")]
    async with scripts.open_turn(replies, scripts.print_step("42\n"), protocol=protocol) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text, outcome.sentence) == (
        OutcomeKind.ANSWERED,
        "It is 42.",
        "",
    )
    assert turn.environment.executed_codes == ["print(6*7)"]
    assert turn.observer.all_text == "Let me see. It is 42."
    assert "".join(turn.observer.contents("writing")) == "print(6*7)"
    kinds = [kind for kind, _ in turn.observer.events if kind not in ("text", "writing")]
    assert kinds == ["step", "usage", "code", "output", "finished", "step", "usage"]
    assert "42" in json.dumps(turn.server.requests[1].messages[-1])
    assert outcome.usage == values.Usage(200, 40, steps=2)


@PROTOCOLS
async def test_error_is_fed_back_and_repaired(protocol):
    replies = [server.code("x"), server.code("x = 1; print(x)"), server.text("1")]
    steps = [scripts.error_step(), scripts.print_step("1")]
    async with scripts.open_turn(replies, *steps, protocol=protocol) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.ANSWERED
    assert "NameError: name 'x' is not defined" in json.dumps(turn.server.requests[1].messages)
    assert "temperature" not in turn.server.requests[0].body
    if protocol != "anthropic":
        assert turn.server.requests[1].body["temperature"] > 0.5


@PROTOCOLS
async def test_a_key_that_cannot_be_sent_ends_the_turn_in_a_sentence(protocol):
    async with scripts.open_turn([], protocol=protocol) as turn:
        keys = {turn.model.api_key_variable: pydantic.SecretStr("sk-abc\u2022\u2022\u2022")}
        turn.catalogue = catalogues.Catalogue(
            [turn.model], keys=keys, patience=settings.Patience(), max_retries=0
        )
        async with asyncio.timeout(30):
            outcome = await turn.run()
        await turn.catalogue.close()
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "request" in outcome.sentence or "refused the API key" in outcome.sentence
    assert turn.server.requests == []


@PROTOCOLS
async def test_code_that_a_person_declines_is_no_failure(protocol):
    replies = [*(server.code(f"print({n})") for n in range(5)), server.text("What then?")]
    async with scripts.open_turn(replies, protocol=protocol) as turn:

        async def decline(code):
            raise ports.NotApprovedError(
                "Not run: declined.", model_note=chat_messages.Note("[The person declined.]")
            )

        outcome = await turn.run(approve=decline)
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "What then?")
    assert turn.environment.executed_codes == []
    assert set(turn.observer.contents("announcement")) == {"Not run: declined."}
    told = json.dumps(turn.server.requests[-1].messages)
    assert "[The person declined.]" in told
    assert "Not run: declined." not in told


@PROTOCOLS
async def test_half_a_character_from_a_model_fails_no_later_request(protocol):
    replies = [server.code("print('\ud800')", "Half: \ud83d."), server.text("Whole.")]
    async with scripts.open_turn(replies, scripts.print_step("\udc00"), protocol=protocol) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "Whole.")
    assert "Half: \ufffd." in json.dumps(turn.server.requests[1].messages, ensure_ascii=False)


@PROTOCOLS
async def test_picture_is_shown_to_a_model_that_sees(protocol):
    image = values.Image(mime="image/png", data=scripts.PNG, plain="<Figure size 640x480>")
    replies = [server.code("plt.show()"), server.text("Look.")]
    async with scripts.open_turn(
        replies, ([image], scripts.OK), protocol=protocol, can_see_images=True
    ) as turn:
        await turn.run()
    sent = json.dumps(turn.server.requests[1].messages)
    assert server.decode_pictures(turn.server.requests[1].body) == [scripts.PNG]
    assert "A picture was shown to the person (png 640x480)." in sent


async def test_picture_is_told_in_words_to_a_blind_model():
    image = values.Image(mime="image/png", data=scripts.PNG, plain="<Figure size 640x480>")
    replies = [server.code("plt.show()"), server.text("Look.")]
    async with scripts.open_turn(replies, ([image], scripts.OK), can_see_images=False) as turn:
        await turn.run()
    sent = json.dumps(turn.server.requests[1].messages)
    assert "A picture was shown to the person (png 640x480)." in sent
    assert "base64" not in sent
    assert "<Figure" not in sent


async def test_several_calls_of_one_reply_are_answered_in_order():
    calls = [("run_code", '{"code": "1"}'), ("browse", "{}"), ("view_image", '{"name": "a"}')]
    replies = [server.Reply(calls=calls, finish="tool_calls"), server.text("ok")]
    image = values.Image(mime="image/png", data=scripts.PNG)
    async with scripts.open_turn(
        replies, ([image], scripts.OK), files={"a": scripts.PNG}, can_see_images=True
    ) as turn:
        await turn.run()
    said = turn.server.requests[1].messages
    assert [one["role"] for one in said[3:]] == ["tool", "tool", "tool", "user"]
    assert said[4]["content"].startswith("There is no tool named 'browse'.")
    assert said[5]["content"] == "[You are shown the picture 'a'.]"


@pytest.mark.parametrize(
    "arguments",
    [
        "print(1)",
        '"print(1)"',
        json.dumps(json.dumps({"code": "print(1)"})),
        '{"code": "```python\\nprint(1)\\n```"}',
        '{"code": """print(1)"""}',
    ],
)
async def test_malformed_arguments_are_read_leniently(arguments):
    replies = [server.call("run_code", arguments), server.text("1")]
    async with scripts.open_turn(replies, scripts.print_step("1")) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.ANSWERED
    assert turn.environment.executed_codes == ["print(1)"]


async def test_unknown_tool_is_answered_to_the_model():
    replies = [server.call("browse", {"url": "x"}), server.text("I cannot.")]
    async with scripts.open_turn(replies) as turn:
        outcome = await turn.run()
    assert outcome.text == "I cannot."
    answer = turn.server.requests[1].messages[-1]["content"]
    known = "run_code, view_image"
    assert answer == f"There is no tool named 'browse'. There are: {known}."


async def test_unreadable_calls_end_the_turn():
    replies = [server.call("browse", {"n": n}) for n in range(4)]
    async with scripts.open_turn(replies) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.MALFORMED
    assert outcome.sentence


async def test_calls_that_fail_are_not_taken_for_unreadable_ones():
    replies = [server.call("view_image", {"name": f"{n}.png"}) for n in range(8)]
    async with scripts.open_turn([*replies[:5], server.text("I see none.")]) as turn:
        assert (await turn.run()).kind is OutcomeKind.ANSWERED
    async with scripts.open_turn(replies) as turn:
        assert (await turn.run()).kind is OutcomeKind.STUCK


async def test_identical_repeat_is_refused_and_then_an_answer_demanded():
    replies = [
        server.code("plt.show()"),
        server.code("# once more\nplt.show()\n"),
        server.code("plt.show()"),
        server.text("There it is."),
    ]
    async with scripts.open_turn(replies, ([], scripts.OK)) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "There it is.")
    assert turn.environment.executed_codes == ["plt.show()"]
    assert "exactly the code that ran just before" in json.dumps(turn.server.requests[2].messages)
    assert turn.server.requests[3].body["tool_choice"] == "none"


@pytest.mark.parametrize("protocol", ["chat", "responses", "fenced"])
async def test_model_that_repeats_for_ever_is_stuck(protocol):
    def reply(request):
        if protocol == "fenced":
            return server.text("```python\nplt.show()\n```\n")
        return server.code("plt.show()")

    async with scripts.open_turn(reply, ([], scripts.OK), protocol=protocol) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.STUCK
    assert len(turn.server.requests) == 4


async def test_the_same_error_again_and_again_ends_the_turn():
    replies = [server.code(f"x + {n}") for n in range(4)]
    async with scripts.open_turn(replies, *[scripts.error_step() for _ in range(4)]) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.STUCK
    assert "NameError: name 'x' is not defined" in outcome.sentence
    assert isinstance(turn.transcript.entries[-1], chat_messages.ToolResult)


async def test_different_errors_without_end_end_the_turn():
    steps = [scripts.error_step(message=str(n)) for n in range(8)]
    async with scripts.open_turn([server.code(f"x{n}") for n in range(8)], *steps) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.STUCK


async def test_steps_are_capped_and_the_last_is_an_answer():
    def reply(request):
        if request.body["tool_choice"] == "none":
            return server.text("This far I came.")
        return server.code(f"print({len(request.messages)})")

    steps = [scripts.print_step(str(n)) for n in range(4)]
    async with scripts.open_turn(reply, *steps, turn={"steps": 5}) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "This far I came.")
    assert outcome.usage.steps == 5


async def test_model_that_calls_even_at_the_last_step_is_out_of_budget():
    steps = [scripts.print_step(str(n)) for n in range(2)]
    replies = [server.code(f"print({n})") for n in range(3)]
    async with scripts.open_turn(replies, *steps, turn={"steps": 3}) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.OUT_OF_BUDGET
    assert outcome.sentence == "This took all 3 steps that a request may take."


async def test_run_that_was_refused_is_told_and_may_be_repeated():
    steps = [errors.PoolFullError(), scripts.print_step("1")]
    replies = [server.code("1"), server.code("1"), server.text("1")]
    async with scripts.open_turn(replies, *steps) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.ANSWERED
    assert turn.environment.executed_codes == ["1", "1"]
    assert "Python is busy everywhere" in json.dumps(turn.server.requests[1].messages)


async def test_code_may_be_repeated_after_the_kernel_was_lost():
    lost = values.Finished(values.Ending.CRASHED, 1.0, "It crashed.", kernel_lost=True)
    replies = [server.code("1"), server.code("1"), server.text("1")]
    async with scripts.open_turn(replies, ([], lost), scripts.print_step("1")) as turn:
        await turn.run()
    assert turn.environment.executed_codes == ["1", "1"]
    assert "All variables are gone" in json.dumps(turn.server.requests[1].messages)


async def test_missing_file_is_told_to_the_model():
    replies = [server.call("view_image", {"name": "/mnt/data/none.png"}), server.text("None.")]
    async with scripts.open_turn(replies) as turn:
        await turn.run()
    assert "no such file" in turn.server.requests[1].messages[-1]["content"]


@PROTOCOLS
async def test_stop_closes_the_stream_at_once_and_keeps_what_was_said(protocol):
    replies = [server.text("One, ", "two, ", fault="stall")]
    async with scripts.open_turn(replies, protocol=protocol) as turn:
        stop = asyncio.Event()
        running = asyncio.create_task(turn.run(stop=stop))
        await turn.observer.wait_for("text")
        await asyncio.sleep(0.05)
        stop.set()
        outcome = await running
        await turn.server.wait_until_closed()
    assert (outcome.kind, outcome.text) == (OutcomeKind.STOPPED, "One, two,")
    assert turn.transcript.entries[-1] == chat_messages.AssistantMessage("One, two, ")
    assert outcome.usage.is_estimated
    assert outcome.usage.steps == 1


async def test_stop_interrupts_code_and_keeps_what_it_showed():
    replies = [server.code("while True: print(1)")]
    async with scripts.open_turn(replies, ([values.Text("stdout", "1\n1\n")], None)) as turn:
        stop = asyncio.Event()
        running = asyncio.create_task(turn.run(stop=stop))
        await turn.observer.wait_for("output")
        stop.set()
        outcome = await running
    assert outcome.kind is OutcomeKind.STOPPED
    assert turn.environment.interruption_count == 1
    said, answered = turn.transcript.entries[-2:]
    assert answered.call_id == said.calls[0].id
    assert answered.text.startswith("1\n1\n[The code was ended: stopped.")


async def test_cancelling_passes_through_and_leaves_a_whole_transcript():
    replies = [server.code("sleep()"), server.text("Again.")]
    async with scripts.open_turn(replies, ([], None)) as turn:
        running = asyncio.create_task(turn.run())
        await turn.observer.wait_for("code")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert turn.environment.interruption_count == 1
        turn.transcript.add_user_message("And now?")
        outcome = await turn.run()
    assert outcome.text == "Again."


@pytest.mark.looptime
async def test_time_over_ends_the_turn_even_in_the_middle_of_code():
    replies = [server.code("sleep()")]
    async with scripts.open_turn(replies, ([], None), turn={"seconds": 30}) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.OUT_OF_BUDGET
    assert turn.environment.interruption_count == 1


async def test_what_a_watcher_raises_ends_the_turn():
    async with scripts.open_turn([server.text("hello")]) as turn:
        turn.observer.emit = _gone
        with pytest.raises(ValueError, match="nobody listens"):
            await turn.run()


def _gone(event):
    if isinstance(event, events.TextAdded):
        raise ValueError("nobody listens")


@PROTOCOLS
async def test_cut_answer_is_gone_on_with(protocol):
    replies = [server.text("It is", fault="cut"), server.text(" 42.")]
    async with scripts.open_turn(replies, protocol=protocol) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.ANSWERED, "It is 42.")
    assert turn.observer.all_text == "It is 42."
    # As one step: readers would see the beginning once by itself, and once in the final text.
    assert len(turn.observer.contents("step")) == 1


@PROTOCOLS
async def test_a_call_that_is_cut_after_words_begins_anew(protocol):
    replies = [
        server.code("print('cut", "Look. ", fault="cut"),
        server.code("print(1)"),
        server.text("1"),
    ]
    async with scripts.open_turn(replies, scripts.print_step("1"), protocol=protocol) as turn:
        await turn.run()
    assert turn.environment.executed_codes == ["print(1)"]
    assert len(turn.observer.contents("step")) == 3


@pytest.mark.looptime
@PROTOCOLS
@pytest.mark.parametrize("fault", ["cut", "eof", "garbage", "error", "stall", "shapes"])
async def test_answers_cut_again_and_again_end_with_what_was_said(protocol, fault):
    replies = [server.text(word, fault=fault) for word in ("a", "b", "c")]
    async with scripts.open_turn(replies, protocol=protocol) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.CUT, "abc")
    assert (
        outcome.sentence
        == "The connection to the model was lost in the middle of its answer. Ask again."
    )


@PROTOCOLS
async def test_call_that_is_cut_is_not_run(protocol):
    replies = [
        server.code("import shutil; shutil.rmtree('x')", fault="cut"),
        server.code("print(1)"),
        server.text("1"),
    ]
    async with scripts.open_turn(replies, scripts.print_step("1"), protocol=protocol) as turn:
        await turn.run()
    assert turn.environment.executed_codes == ["print(1)"]


@PROTOCOLS
async def test_answer_at_its_longest_is_gone_on_with(protocol):
    replies = [server.text("It is", finish="length"), server.text(" 42.")]
    async with scripts.open_turn(replies, protocol=protocol) as turn:
        outcome = await turn.run()
    assert outcome.text == "It is 42."
    assert "cut off at its longest" in json.dumps(turn.server.requests[1].messages)


@PROTOCOLS
async def test_refusal_is_an_ending(protocol):
    replies = [server.Reply(refusal=["I can't ", "help."])]
    async with scripts.open_turn(replies, protocol=protocol) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.REFUSED, "I can't help.")
    assert outcome.sentence == "The model's provider refused this request. Ask in other words."


@PROTOCOLS
async def test_content_filter_is_an_ending(protocol):
    async with scripts.open_turn(
        [server.text("So", finish="content_filter")], protocol=protocol
    ) as turn:
        outcome = await turn.run()
    assert (outcome.kind, outcome.text) == (OutcomeKind.REFUSED, "So")


@PROTOCOLS
async def test_empty_answer_is_asked_again_and_ends(protocol):
    async with scripts.open_turn([server.text(), server.text("Hi.")], protocol=protocol) as turn:
        assert (await turn.run()).text == "Hi."
    async with scripts.open_turn([server.text() for _ in range(3)], protocol=protocol) as turn:
        assert (await turn.run()).kind is OutcomeKind.EMPTY


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (server.failure(401, "bad key"), model_errors.KeyRefusedError),
        (server.failure(403), model_errors.KeyRefusedError),
        (server.failure(404), model_errors.UnknownModelError),
        (server.failure(429, code="insufficient_quota"), model_errors.QuotaError),
        (server.failure(429, headers={"Retry-After": "600"}), model_errors.RateLimitedError),
        (server.failure(400, "your words"), model_errors.RequestRefusedError),
        (server.failure(400, code="content_filter"), model_errors.RefusedError),
    ],
)
async def test_refused_requests_end_with_their_sentence(reply, failure):
    tries = 3 if failure is model_errors.RequestRefusedError else 1
    async with scripts.open_turn([reply] * tries) as turn:
        outcome = await turn.run()
    assert outcome.sentence == str(model_errors.name_server(failure(), turn.catalogue.find_model()))
    assert outcome.usage.money == 0
    assert turn.waits == []


@pytest.mark.looptime
@PROTOCOLS
@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (server.failure(500), model_errors.OverloadedError),
        (server.failure(429), model_errors.RateLimitedError),
        (server.Reply(fault="cut"), model_errors.UnreachableError),
        (server.Reply(fault="garbage"), model_errors.MalformedResponseError),
        (server.Reply(fault="html"), model_errors.MalformedResponseError),
        (server.Reply(fault="stall"), model_errors.ResponseTimeoutError),
    ],
)
async def test_passing_failures_are_retried_and_then_said(protocol, reply, failure):
    async with scripts.open_turn([reply] * 3, max_retries=2, protocol=protocol) as turn:
        outcome = await turn.run()
    expected = model_errors.name_server(failure(), turn.catalogue.find_model())
    assert (outcome.kind, outcome.sentence) == (OutcomeKind.UNREACHABLE, str(expected))
    assert len(turn.waits) == 2
    assert turn.waits[1] > turn.waits[0]


async def test_retry_after_is_honoured_and_announced():
    replies = [server.failure(429, headers={"Retry-After": "7"}), server.text("Hi.")]
    async with scripts.open_turn(replies) as turn:
        outcome = await turn.run()
    assert outcome.text == "Hi."
    assert turn.waits == [7.0]
    assert turn.observer.contents("announcement") == ["The model is busy. Asking again in 7 s."]


async def test_server_that_is_not_there_is_unreachable():
    async with scripts.open_turn([], base_url="http://127.0.0.1:9/v1") as turn:
        outcome = await turn.run()
    assert "cannot be reached" in outcome.sentence


async def test_key_is_in_no_sentence_and_no_log(caplog):
    caplog.set_level(0)
    async with scripts.open_turn([]) as turn:
        turn.server.api_key = "another-key"
        outcome = await turn.run()
    assert "refused the API key" in outcome.sentence
    assert "Incorrect API key provided: [redacted]" in caplog.text
    assert "test-key-0123456789" not in caplog.text


async def test_context_that_is_too_long_is_shortened_and_asked_again():
    replies = [
        server.failure(400, code="context_length_exceeded"),
        server.text("Hi."),
    ]
    async with scripts.open_turn(
        replies, question="word " * 1500, context_tokens=4096, answer_tokens=512
    ) as turn:
        outcome = await turn.run()
    assert outcome.text == "Hi."
    first, second = (len(json.dumps(one.messages)) for one in turn.server.requests)
    assert second < first


async def test_old_turns_are_summarised_when_the_window_is_full():
    replies = [server.text("They wanted apples."), server.text("Pears.")]
    async with scripts.open_turn(
        replies, question="apples " * 900, context_tokens=2048, answer_tokens=256
    ) as turn:
        turn.transcript.add_reply("Apples it is.")
        turn.transcript.add_user_message("And now pears?")
        outcome = await turn.run()
    assert outcome.text == "Pears."
    assert turn.observer.all_text == "Pears."
    said = json.dumps(turn.server.requests[1].messages)
    assert "They wanted apples." in said
    assert "apples apples" not in said
    assert outcome.usage.tokens == 240


async def test_old_turns_are_noted_where_the_summary_fails():
    replies = [server.failure(402), server.text("Pears.")]
    async with scripts.open_turn(
        replies, question="apples " * 900, context_tokens=2048, answer_tokens=256
    ) as turn:
        turn.transcript.add_reply("Apples it is.")
        turn.transcript.add_user_message("And now pears?")
        await turn.run()
    assert "1 earlier requests are left out" in json.dumps(turn.server.requests[1].messages)


async def test_transcript_survives_being_stored():
    replies = [server.code("1"), server.text("1"), server.text("2")]
    async with scripts.open_turn(replies, scripts.print_step("1")) as turn:
        await turn.run()
        stored = json.dumps([chat_messages.to_dict(one) for one in turn.transcript.entries])
        turn.transcript = transcripts.Transcript(map(chat_messages.from_dict, json.loads(stored)))
        turn.transcript.add_user_message("And 2?")
        assert (await turn.run()).text == "2"


async def test_money_is_counted_exactly():
    replies = [server.code("1", usage=(1234, 56)), server.text("1", usage=(2345, 7))]
    async with scripts.open_turn(
        replies, scripts.print_step("1"), input_price="0.15", output_price="0.60"
    ) as turn:
        outcome = await turn.run()
    assert outcome.usage.money == decimal.Decimal("0.00057465")
    assert [spent.money for spent in turn.observer.contents("usage")] == [
        decimal.Decimal("0.0002187"),
        decimal.Decimal("0.00057465"),
    ]


async def test_no_call_is_made_that_money_does_not_cover():
    def reply(request):
        return server.code(f"print({len(request.messages)})", usage=(1000, 100))

    steps = [scripts.print_step(str(n)) for n in range(9)]
    async with scripts.open_turn(
        reply, *steps, turn={"money": "0.01"}, input_price="1", output_price="10"
    ) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.OUT_OF_BUDGET
    assert outcome.sentence == "This would cost more than 0.01, the most for one request."
    assert outcome.usage.money <= decimal.Decimal("0.01")
    assert turn.server.requests[0].body["max_tokens"] < 1000


async def test_allowance_is_asked_before_each_call():
    asked = []

    async def allowance(spent):
        asked.append(spent.steps)
        return "Your day's money is used up." if len(asked) > 1 else None

    async with scripts.open_turn([server.code("1")], scripts.print_step("1")) as turn:
        outcome = await turn.run(allowance=allowance)
    assert (outcome.kind, outcome.sentence) == (
        OutcomeKind.OUT_OF_BUDGET,
        "Your day's money is used up.",
    )
    assert asked == [1, 2]


async def test_cancelling_twice_does_not_leave_code_running():
    started = asyncio.Event()

    class Slow(scripts.Workbench):
        async def run(self, code, *, show, seconds=None):
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                # The interrupt, and the wait for the code to react.
                await asyncio.sleep(0.1)
                self.interruption_count += 1

    async with scripts.open_turn([server.code("while True: pass")]) as turn:
        turn.environment = Slow()
        running = asyncio.create_task(turn.run())
        await started.wait()
        for _ in range(2):
            running.cancel()
            await asyncio.sleep(0.02)
        await asyncio.wait({running})
        assert running.cancelled()
        assert turn.environment.interruption_count == 1
    assert isinstance(turn.transcript.entries[-1], chat_messages.ToolResult)


async def test_model_with_nothing_to_answer_from_is_not_made_to_answer():
    replies = [server.code("1/0")] * 3
    async with scripts.open_turn(replies, scripts.error_step("ZeroDivisionError", "no")) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.STUCK
    assert outcome.sentence.startswith(
        "The code failed again and again (ZeroDivisionError: no). Ask in other words"
    )


@pytest.mark.parametrize("usage", [None, (0, 0)])
async def test_usage_is_estimated_where_the_server_does_not_count(usage):
    async with scripts.open_turn([server.text("Hello there.", usage=usage)]) as turn:
        outcome = await turn.run()
    assert outcome.usage.is_estimated
    assert outcome.usage.input_tokens > 0
    assert outcome.usage.output_tokens > 0


@pytest.mark.parametrize("protocol", ["chat", "auto"])
async def test_calls_count_in_an_estimate_however_they_were_made(protocol):
    long = json.dumps({"name": "view_image", "arguments": {"of": "x" * 3200}})
    replies = [server.text(f"```json\n{long}\n```", usage=None), server.text("None.", usage=None)]
    if protocol == "chat":
        replies[0] = server.call("view_image", {"of": "x" * 3200}, usage=None)
    async with scripts.open_turn(replies, protocol=protocol) as turn:
        outcome = await turn.run()
    assert outcome.usage.output_tokens > 1000


async def test_summary_that_breaks_off_is_paid_for():
    replies = [server.text("They wanted", fault="cut"), server.text("Pears.")]
    async with scripts.open_turn(
        replies,
        question="apples " * 900,
        context_tokens=2176,
        answer_tokens=256,
        # Nor is it told of a tool for that, which would leave the less to sum up.
        can_see_images=False,
    ) as turn:
        turn.transcript.add_reply("Apples it is.")
        turn.transcript.add_user_message("And now pears?")
        outcome = await turn.run()
    assert outcome.text == "Pears."
    assert outcome.usage.steps == 1
    assert outcome.usage.input_tokens > 500


async def test_a_short_text_keeps_to_the_budget_and_is_paid_for_if_it_is_stopped():
    class Llm:
        def __init__(self):
            self.prompts = asyncio.Queue()

        async def reply(self, prompt, *, emit):
            self.prompts.put_nowait(prompt)
            await asyncio.Event().wait()

    model = settings.Model(name="m", base_url="http://127.0.0.1")
    budget = budgets.Budget(settings.TurnLimits(tokens=200), model)
    llm, charged = Llm(), []
    writing = asyncio.create_task(
        model_calls.write_short_text(
            llm, budget, system="Sum up.", text="x" * 32, answer_tokens=400, charge=charged.append
        )
    )
    prompt = await llm.prompts.get()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    (usage,) = charged
    assert usage.is_estimated
    assert usage.input_tokens > 10
    assert prompt.answer_tokens == 200 - usage.input_tokens


async def test_of_several_calls_only_the_one_that_ran_is_told_what_it_had_shown():
    calls = [("run_code", '{"code": "1"}'), ("run_code", '{"code": "2"}')]
    replies = [server.Reply(calls=calls, finish="tool_calls")]
    async with scripts.open_turn(replies, ([values.Text("stdout", "half")], None)) as turn:
        stop = asyncio.Event()
        running = asyncio.create_task(turn.run(stop=stop))
        await turn.observer.wait_for("output")
        stop.set()
        assert (await running).kind is OutcomeKind.STOPPED
    ran, waited = turn.transcript.entries[-2:]
    assert "half" in ran.text
    assert waited.text == "[This was not run: the turn was over before.]"


async def test_code_that_waited_for_approval_is_said_not_to_have_run():
    stop = asyncio.Event()

    async def stop_instead(code):
        stop.set()
        await asyncio.Event().wait()

    async with scripts.open_turn([server.code("1")]) as turn:
        assert (await turn.run(stop=stop, approve=stop_instead)).kind is OutcomeKind.STOPPED
    assert turn.transcript.entries[-1].text == "[This was not run: the turn was over before.]"


async def test_endless_answer_is_cut():
    replies = [server.text(*["word " * 200] * 50, fault="stall") for _ in range(3)]
    async with scripts.open_turn(replies, answer_tokens=64) as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.CUT
    assert len(outcome.text) < 20_000


async def test_fifty_turns_at_once_are_not_mixed_up():
    def reply(request):
        number = request.messages[1]["content"]
        if request.messages[-1]["role"] == "tool":
            return server.text(f"done {request.messages[-1]['content']}")
        return server.code(f"print({number})")

    async with scripts.open_turn(reply) as turn:

        async def one(number):
            transcript = transcripts.Transcript()
            transcript.add_user_message(str(number))
            mine = scripts.ScriptedTurn(**{**vars(turn), "transcript": transcript})
            mine.environment = scripts.Workbench(scripts.print_step(str(number)))
            mine.observer = scripts.Observer()
            return (await mine.run()).text

        texts = await asyncio.gather(*map(one, range(50)))
    assert texts == [f"done {number}" for number in range(50)]


async def test_a_store_that_fails_ends_the_turn_without_asking_the_model_again():
    async with scripts.open_turn([server.code("1")], errors.StoreError("No.")) as turn:
        with pytest.raises(errors.StoreError):
            await turn.run()
    assert len(turn.server.requests) == 1
    assert isinstance(turn.transcript.entries[-1], chat_messages.ToolResult)


async def test_who_links_to_a_missing_file_again_is_not_asked_for_ever_and_people_are_told():
    replies = [server.text("I saved [it](mean.csv)."), server.text("It is [here](mean.csv).")]
    async with scripts.open_turn(replies, protocol="chat") as turn:
        outcome = await turn.run()
    assert outcome.text == "It is [here](mean.csv)."
    assert outcome.missing_files == ("mean.csv",)
    assert turn.observer.contents("announcement") == [
        "The model was asked to check this answer, and answers again."
    ]


async def test_a_file_that_was_never_saved_is_objected_to_also_after_code_ran():
    replies = [
        server.code("save()"),
        server.text("I saved [it](sandbox:/mnt/data/out.csv)."),
        server.text("Not so."),
    ]
    async with scripts.open_turn(replies, scripts.print_step("ok"), protocol="chat") as turn:
        outcome = await turn.run()
    assert outcome.text == "Not so."
    assert not outcome.missing_files


@pytest.mark.parametrize("name", ["out.csv", "data (1).csv", "Q1 [final] 100%.csv"])
async def test_a_file_that_exists_is_never_said_to_be_missing(name):
    answer = f"73.2 of 99.6, saved as [{name}](sandbox:/mnt/data/{name}), `{name}`."
    replies = [server.code("save()"), server.text(answer)]
    files = {name: b"x"}
    async with scripts.open_turn(
        replies, scripts.print_step("ok"), protocol="chat", files=files
    ) as turn:
        outcome = await turn.run()
    assert outcome.usage.steps == 2
    assert not outcome.missing_files


async def test_figures_are_the_models_own_affair():
    replies = [server.text("The mean is 73.2.")]
    question = "[The person sent the file 'a.csv'; it is at /mnt/data/a.csv.]\n\nMean?"
    async with scripts.open_turn(replies, protocol="chat", question=question) as turn:
        outcome = await turn.run()
    assert (outcome.text, outcome.usage.steps) == ("The mean is 73.2.", 1)


async def test_a_second_try_that_fails_leaves_the_first_answer_and_what_is_wrong_with_it():
    replies = [server.text("I saved [it](mean.csv)."), server.Reply(status=401)]
    async with scripts.open_turn(replies, protocol="chat") as turn:
        outcome = await turn.run()
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert outcome.text == "I saved [it](mean.csv)."
    assert outcome.missing_files == ("mean.csv",)
