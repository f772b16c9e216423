"""Time of a turn without its model and its code, and time to the first sign of life."""

from __future__ import annotations

import time
import uuid

import openai

from bench import measured_bots, metrics, replies, sample_sizes, scripted_model
from interpreter_bot import settings, values
from interpreter_bot.sessions import requests

_ANSWER = "The sum is 2."
_BENCHER = requests.Person("bench")


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure turns of one execution: in a live session, and in new ones."""
    async with (
        scripted_model.run_server() as model,
        measured_bots.open_conversations(model) as service,
    ):
        key = _make_key()
        await _take_turn(service, key, "number = 1")
        live_turns = []
        for turn in range(effort.turns):
            await measured_bots.wait_until_saved(service, key, turn + 1)
            live_turns.append(await _take_turn(service, key))
        new_turns = [await _take_turn(service, _make_key()) for _ in range(effort.turns // 4)]
        model_times = [await _time_model(model) for _ in range(effort.turns)]
    model_ms = metrics.percentile(model_times, 0.5)
    return [
        metrics.Measure(
            "turn in a live session, without model and code",
            "ms",
            [max(turn_ms - code_ms - model_ms, 0.0) for turn_ms, code_ms, _ in live_turns],
            # 60 % of the time before kernels had hosts.
            bar=23.4,
            alternative=metrics.Alternative("model and code alone", [model_ms + live_turns[0][1]]),
            notes={"whole": [times[0] for times in live_turns], "model_alone": model_times},
        ),
        metrics.Measure(
            "(turn in a new session, kernel from the spares, without model and code)",
            "ms",
            [max(turn_ms - code_ms - model_ms, 0.0) for turn_ms, code_ms, _ in new_turns],
        ),
        metrics.Measure(
            "request to first sign of life",
            "ms",
            [first_sign_ms for *_, first_sign_ms in live_turns + new_turns],
            bar=50.0,
        ),
    ]


def _make_key() -> values.SessionKey:
    return values.SessionKey("bench", thread=uuid.uuid4().hex)


async def _take_turn(
    service: measured_bots.Conversations, key: values.SessionKey, code: str = measured_bots.SUM_CODE
) -> tuple[float, float, float]:
    """Return the milliseconds of a whole turn, of its code, and to the first sign of life."""
    text = scripted_model.make_question([code], _ANSWER)
    reply = replies.Reply()
    end = await service.handle(requests.Request(key=key, person=_BENCHER, text=text), reply)
    if end.status is not values.TurnStatus.DONE or end.text.strip() != _ANSWER:
        raise RuntimeError(f"the turn ended {end}")
    return reply.whole_milliseconds, reply.code_milliseconds, reply.first_milliseconds


async def _time_model(model: settings.Model) -> float:
    """Return the milliseconds of a turn's two requests to the model, sent by the client alone."""
    text = scripted_model.make_question([measured_bots.SUM_CODE], _ANSWER)
    question = [{"role": "user", "content": text}]
    call = {"role": "assistant", "tool_calls": [], "content": ""}
    messages_with_result = [
        *question,
        call,
        {"role": "tool", "tool_call_id": "call_0", "content": "2"},
    ]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key="none") as client:
        # The first request only opens the connection, which a bot keeps open.
        for messages in (question, question, messages_with_result):
            if messages is not messages_with_result:
                start_time = time.perf_counter()
            stream = await client.chat.completions.create(
                model=model.name, messages=messages, stream=True
            )
            async for _ in stream:
                pass
    return measured_bots.milliseconds_since(start_time)
