"""Fifty people ask at once for two plots each: all are served, and the bot's memory stays small."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bench import measured_bots, metrics, replies, sample_sizes, scripted_model
from interpreter_bot import values
from interpreter_bot.sessions import requests

_PLOT = """
import matplotlib.pyplot as plt
plt.plot([{number}, 2, 3]); plt.title('{number}'); plt.show()
print('session {number}, plot {plot}')
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it in a bot of its own."""
    figures = await measured_bots.run_in_own_process("bench.crowds", effort.crowd)
    crowd = f"{effort.crowd} sessions at once, 2 plots each"
    return [
        metrics.Measure(f"{crowd}: unfinished or mixed up", "", [figures["wrong"]], bar=0.0),
        metrics.Measure(f"{crowd}: memory of the bot", "MB", figures["sizes"], "most", bar=300.0),
        metrics.Measure(f"{crowd}: the whole turn", "ms", figures["turns"]),
        metrics.Measure(f"({crowd}: loop lag)", "ms", figures["lags"], "p99"),
    ]


async def _run_bot(count: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"sizes": [], "lags": [], "turns": []}
    async with (
        scripted_model.run_server() as model,
        measured_bots.open_conversations(model, concurrent=count + 10) as service,
        measured_bots.running_meanwhile(
            measured_bots.record_sizes(figures["sizes"]), measured_bots.record_lags(figures["lags"])
        ),
    ):
        turns = [_turn(service, number, figures["turns"]) for number in range(count)]
        figures["wrong"] = (await asyncio.gather(*turns)).count(False)
    return figures


async def _turn(service: measured_bots.Conversations, number: int, turn_times: list[float]) -> bool:
    """Take one turn; return whether its reply is complete and holds nothing of another session."""
    codes = [_PLOT.format(number=number, plot=plot) for plot in (1, 2)]
    answer = f"This is session {number}."
    request = requests.Request(
        key=values.SessionKey("bench", thread=str(number)),
        person=requests.Person(str(number)),
        text=scripted_model.make_question(codes, answer),
    )
    reply = replies.Reply()
    start_time = time.perf_counter()
    end = await service.handle(request, reply)
    turn_times.append(measured_bots.milliseconds_since(start_time))
    printed = [output.text for output in reply.outputs if isinstance(output, values.Text)]
    pictures = sum(isinstance(output, values.Image) for output in reply.outputs)
    expected = "".join(f"session {number}, plot {plot}\n" for plot in (1, 2))
    is_answered = end.status is values.TurnStatus.DONE and end.text.strip() == answer
    return is_answered and "".join(printed) == expected and pictures == 2


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1])))))
