"""Fifty people at once, each with two plots: all served, nothing mixed up, the bot stays small."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bench import measured_bots, metrics, replies, sample_sizes, scripted_model
from interpreter_bot import values
from interpreter_bot.sessions import requests

_SIDE_BY_SIDE = 1_000
_PLOT = """
import matplotlib.pyplot as plt
plt.plot([{number}, 2, 3]); plt.title('{number}'); plt.show()
print('session {number}, plot {plot}')
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it in a bot of its own."""
    figures = await measured_bots.run_in_own_process("bench.crowds", effort.crowd, 0)
    crowded = await measured_bots.run_in_own_process("bench.crowds", effort.crowd, _SIDE_BY_SIDE)
    crowd = f"{effort.crowd} sessions at once, 2 plots each"
    return [
        metrics.Measure(f"{crowd}: unfinished or mixed up", "", [figures["wrong"]], bar=0.0),
        metrics.Measure(f"{crowd}: memory of the bot", "MB", figures["sizes"], "most", bar=300.0),
        metrics.Measure(
            f"{crowd}: the whole turn",
            "ms",
            figures["turns"],
            alternative=metrics.Alternative("all kernels start side by side", crowded["turns"]),
            least_ratio=1 / 0.5,
        ),
        metrics.Measure(f"({crowd}: loop lag)", "ms", figures["lags"], "p99"),
    ]


async def _run_bot(count: int, starts: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"sizes": [], "lags": [], "turns": []}
    async with (
        scripted_model.serving() as model,
        measured_bots.open_conversations(model, concurrent=count + 10, starts=starts) as service,
        measured_bots.running_meanwhile(
            measured_bots.record_sizes(figures["sizes"]), measured_bots.record_lags(figures["lags"])
        ),
    ):
        turns = [_turn(service, number, figures["turns"]) for number in range(count)]
        figures["wrong"] = (await asyncio.gather(*turns)).count(False)
    return figures


async def _turn(service: measured_bots.Conversations, number: int, taken: list[float]) -> bool:
    """Take one turn, and say whether all of it came, and nothing of another's."""
    codes = [_PLOT.format(number=number, plot=plot) for plot in (1, 2)]
    answer = f"This is session {number}."
    request = requests.Request(
        key=values.SessionKey("bench", thread=str(number)),
        person=requests.Person(str(number)),
        text=scripted_model.question(codes, answer),
    )
    reply = replies.Reply()
    started = time.perf_counter()
    end = await service.handle(request, reply)
    taken.append(measured_bots.milliseconds(started))
    printed = [one.text for one in reply.shown if isinstance(one, values.Text)]
    pictures = sum(isinstance(one, values.Image) for one in reply.shown)
    expected = "".join(f"session {number}, plot {plot}\n" for plot in (1, 2))
    is_said = end.status is values.TurnStatus.DONE and end.text.strip() == answer
    return is_said and "".join(printed) == expected and pictures == 2


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1]), int(sys.argv[2])))))
