"""What a turn costs beyond its model and its code, and how soon people see that it goes on."""

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
        scripted_model.serving() as model,
        measured_bots.open_conversations(model) as service,
    ):
        key = _new()
        await _turn(service, key, "number = 1")
        live = []
        for turn in range(effort.turns):
            await measured_bots.wait_until_saved(service, key, turn + 1)
            live.append(await _turn(service, key))
        new = [await _turn(service, _new()) for _ in range(effort.turns // 4)]
        model_alone = [await _model_alone(model) for _ in range(effort.turns)]
    alone = metrics.percentile(model_alone, 0.5)
    return [
        metrics.Measure(
            "turn in a live session, without model and code",
            "ms",
            [max(whole - code - alone, 0.0) for whole, code, _ in live],
            # 60 % of what it took before kernels had hosts.
            bar=23.4,
            alternative=metrics.Alternative("model and code alone", [alone + live[0][1]]),
            notes={"whole": [one[0] for one in live], "model_alone": model_alone},
        ),
        metrics.Measure(
            "(turn in a new session, kernel from the spares, without model and code)",
            "ms",
            [max(whole - code - alone, 0.0) for whole, code, _ in new],
        ),
        metrics.Measure(
            "request to first sign of life", "ms", [first for *_, first in live + new], bar=50.0
        ),
    ]


def _new() -> values.SessionKey:
    return values.SessionKey("bench", thread=uuid.uuid4().hex)


async def _turn(
    service: measured_bots.Conversations, key: values.SessionKey, code: str = measured_bots.SUM_CODE
) -> tuple[float, float, float]:
    """Milliseconds of a whole turn, of its code, and until the first sign of life."""
    text = scripted_model.question([code], _ANSWER)
    reply = replies.Reply()
    end = await service.handle(requests.Request(key=key, person=_BENCHER, text=text), reply)
    if end.status is not values.TurnStatus.DONE or end.text.strip() != _ANSWER:
        raise RuntimeError(f"the turn ended {end}")
    return reply.whole_milliseconds, reply.code_milliseconds, reply.first_milliseconds


async def _model_alone(model: settings.Model) -> float:
    """Milliseconds of the two questions of such a turn, asked by nothing but the client."""
    text = scripted_model.question([measured_bots.SUM_CODE], _ANSWER)
    question = [{"role": "user", "content": text}]
    call = {"role": "assistant", "tool_calls": [], "content": ""}
    messages_with_result = [
        *question,
        call,
        {"role": "tool", "tool_call_id": "call_0", "content": "2"},
    ]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key="none") as client:
        # The first question opens the connection, which a bot has open.
        for messages in (question, question, messages_with_result):
            if messages is not messages_with_result:
                started = time.perf_counter()
            stream = await client.chat.completions.create(
                model=model.name, messages=messages, stream=True
            )
            async for _ in stream:
                pass
    return measured_bots.milliseconds(started)
