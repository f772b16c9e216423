"""Whether a small model answers more with native calls or with code blocks.

`python -m bench.tool_call_comparison --url http://127.0.0.1:8911/v1 --model NAME`: the questions of
`bench.answer_accuracy`, each in a turn of its own, once with `protocol = chat` and once with
`fenced`. The first takes several times as long: `--chat-questions` leaves questions out of it. What
is compared is what was asked both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import pathlib
from typing import Any, Final

from bench import answer_accuracy, machine_descriptions, one_shot_comparison, questions

_RESULT: Final = pathlib.Path(__file__).parent / "results" / "tool_call_comparison.json"
_PROTOCOLS: Final = ("chat", "fenced")


async def main(given: argparse.Namespace) -> dict[str, Any]:
    """Ask everything in both ways."""
    machine = machine_descriptions.describe()
    protocols: dict[str, Any] = {}
    for protocol in _PROTOCOLS:
        subjects = [subject() for subject in questions.SUBJECTS.values()]
        if protocol == "chat":
            subjects = [_first(subject, given.chat_questions) for subject in subjects]
        async with one_shot_comparison.means(
            given.url, given.model, protocol, given.kept
        ) as opened:
            sets = await asyncio.gather(*(answer_accuracy.measure(opened, one) for one in subjects))
        protocols[protocol] = dict(zip(questions.SUBJECTS, sets, strict=True))
    return {
        "machine": machine,
        "model": given.model,
        "right": {
            protocol: {name: f"{one['right']} of {one['total']}" for name, one in sets.items()}
            for protocol, sets in protocols.items()
        },
        "right_of_those_asked_both_ways": {
            protocol: _right_of_first(sets, given.chat_questions)
            for protocol, sets in protocols.items()
        },
        "protocols": protocols,
    }


def _first(subject: questions.Subject, limit: int | None) -> questions.Subject:
    return dataclasses.replace(subject, questions=subject.questions[:limit])


def _right_of_first(sets: dict[str, Any], limit: int | None) -> str:
    turns = [turn for one in sets.values() for turn in one["turns"][:limit]]
    return f"{sum(turn['is_right'] for turn in turns)} of {len(turns)}"


if __name__ == "__main__":
    own = argparse.ArgumentParser(prog="python -m bench.tool_call_comparison", description=__doc__)
    own.add_argument("--chat-questions", type=int, help="asked of each table; else all")
    one_shot_comparison.run(main, own, _RESULT)
