"""Whether the loop is worth it: the same questions to one prompt and to the loop, side by side.

`python -m bench.one_shot_comparison --url http://127.0.0.1:8911/v1 --model NAME`: one shot is one
prompt whose one block of code runs once in our kernel, and what it prints is the answer; the loop
is the product's own, and its last words are the answer. Both are told the same of the file, at
temperature 0. What becomes of `tuning_questions` and `spent_questions` may be looked at to mend
things; what becomes of `held_out_questions` may not. It takes an hour or so on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias

import openai

from bench import (
    answer_accuracy,
    held_out_questions,
    machine_descriptions,
    measured_bots,
    model_reply_cache,
    questions,
    spent_questions,
    tuning_questions,
)
from interpreter_bot import settings
from interpreter_bot.agent import observations
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.text import output_screens

_RESULT: Final = pathlib.Path(__file__).parent / "results" / "one_shot_comparison.json"
_PARTS: Final = {
    "tuning": {**tuning_questions.SUBJECTS, **spent_questions.SUBJECTS},
    "held_out": held_out_questions.SUBJECTS,
}
_SYSTEM: Final = "You are a data analyst who writes Python. Files are in /mnt/data."
_ASK: Final = (
    "Write one ```python block that reads the file and prints the answer to the question. It is "
    "run once, and what it prints is the answer."
)
_BLOCK: Final = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
_ANSWER_TOKENS: Final = 1024
_OUTPUT_CHARACTERS: Final = 8000
_AT_ONCE: Final = 4

_Way: TypeAlias = Callable[
    [answer_accuracy.Means, questions.Subject, questions.Question], Awaitable[dict[str, Any]]
]


async def one_shot(
    means: answer_accuracy.Means, subject: questions.Subject, question: questions.Question
) -> dict[str, Any]:
    """Ask once, run once."""
    started = time.monotonic()
    said, tokens = await _reply(
        means.model, f"{answer_accuracy.described(subject)}\n\n{question.text}\n\n{_ASK}"
    )
    block = _BLOCK.search(said)
    printed = await _printed(means, subject, question, block[1]) if block else ""
    return {
        "question": question.text,
        "is_right": question.is_right(questions.Answer(text=printed)),
        "answer": printed,
        "said": said,
        "steps": 1,
        "tokens": tokens,
        "seconds": round(time.monotonic() - started, 1),
    }


async def _reply(model: settings.Model, asked: str) -> tuple[str, int]:
    """Hear a reply to the end of its first block."""
    said, pieces = "", 0
    async with openai.AsyncOpenAI(api_key="none", base_url=model.base_url, timeout=1800) as client:
        stream = await client.chat.completions.create(
            model=model.name,
            messages=[
                {"role": "system", "content": _SYSTEM},
                {"role": "user", "content": asked},
            ],
            max_tokens=_ANSWER_TOKENS,
            temperature=0,
            stream=True,
        )
        async with stream:
            async for chunk in stream:
                said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                pieces += 1
                if re.search(r"```(?:python|py)?[ \t]*\n.*\n```", said, re.DOTALL):
                    break
    return said, pieces


async def _printed(
    means: answer_accuracy.Means,
    subject: questions.Subject,
    question: questions.Question,
    code: str,
) -> str:
    key = f"one shot, {subject.name}: {question.text}"
    environment, screen = answer_accuracy.Workbench(means.pool, key), output_screens.Screen()
    await environment.put(subject.file_name, subject.content)
    finished = await environment.run(code, show=screen.show)
    await means.pool.forget(key)
    return observations.execution(screen.outputs, finished, _OUTPUT_CHARACTERS)


_WAYS: Final[dict[str, _Way]] = {"one_shot": one_shot, "loop": answer_accuracy.ask}


async def measure(means: answer_accuracy.Means, part: str, way: str) -> dict[str, Any]:
    """Put all questions of a part one way; prints as it goes."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def turn(subject: questions.Subject, question: questions.Question) -> dict[str, Any]:
        async with places:
            turn = await _WAYS[way](means, subject, question)
        mark = "right" if turn["is_right"] else "WRONG"
        words = f"{turn['seconds']:.0f} s, {turn['steps']} steps: {question.text}"
        print(f"  {way} {mark} {words}\n        {turn['answer'][-200:]!r}", flush=True)
        # No measure where a reply was kept.
        del turn["seconds"]
        return {"table": subject.name, **turn}

    subjects = [subject() for subject in _PARTS[part].values()]
    turns = await asyncio.gather(
        *(turn(subject, question) for subject in subjects for question in subject.questions)
    )
    right = sum(one["is_right"] for one in turns)
    print(f"{part}, {way}: {right} of {len(turns)} right", flush=True)
    return {"right": right, "total": len(turns), "turns": turns}


@contextlib.asynccontextmanager
async def means(url: str, name: str, protocol: Any, kept: pathlib.Path) -> AsyncIterator[Any]:
    """Open a pool and a model on a server."""
    async with contextlib.AsyncExitStack() as stack:
        base_url = await stack.enter_async_context(model_reply_cache.serving(url, kept))
        model = settings.Model(
            name=name,
            base_url=base_url,
            api_key_variable="",
            protocol=protocol,
            context_tokens=8192,
            answer_tokens=_ANSWER_TOKENS,
            temperature=0.0,
        )
        patience = settings.Patience(silence_seconds=1800)
        catalogue = catalogues.Catalogue([model], keys={}, patience=patience)
        stack.push_async_callback(catalogue.close)
        pool = await stack.enter_async_context(measured_bots.pool(spares=_AT_ONCE))
        yield answer_accuracy.Means(pool=pool, llm=await catalogue.llm(), model=model)


async def main(given: argparse.Namespace) -> dict[str, Any]:
    """Compare."""
    machine = machine_descriptions.describe()
    async with means(given.url, given.model, given.protocol, given.kept) as opened:
        parts = {
            part: {way: await measure(opened, part, way) for way in given.ways or _WAYS}
            for part in given.parts or _PARTS
        }
    return {
        "machine": machine,
        "model": given.model,
        "protocol": given.protocol,
        "right": {
            part: {way: f"{one['right']} of {one['total']}" for way, one in ways.items()}
            for part, ways in parts.items()
        },
        "ahead_points": _ahead(parts),
        "parts": parts,
    }


def _ahead(parts: dict[str, Any]) -> dict[str, float]:
    """Say by how many points of a hundred the loop is ahead, where both ways were taken."""
    return {
        part: round(
            100 * (ways["loop"]["right"] - ways["one_shot"]["right"]) / ways["loop"]["total"], 1
        )
        for part, ways in parts.items()
        if len(ways) == len(_WAYS)
    }


Measure: TypeAlias = Callable[[argparse.Namespace], Coroutine[Any, Any, dict[str, Any]]]


def run(measure: Measure, parser: argparse.ArgumentParser, result: pathlib.Path) -> None:
    """Measure what the command line says, and write what came out.

    Args:
        measure: gets the arguments.
        parser: of those that others do not have.
        result: the file to write, unless another is named.
    """
    parser.add_argument("--url", required=True, help="the base URL of the model's server")
    parser.add_argument("--model", required=True, help="what the server calls the model")
    kept = pathlib.Path(tempfile.gettempdir()) / "interpreter-bot-replies"
    parser.add_argument("--kept", type=pathlib.Path, default=kept, help="a folder for replies")
    parser.add_argument("--into", type=pathlib.Path, default=result, help="the file to write")
    given = parser.parse_args()
    found = asyncio.run(measure(given))
    given.into.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps(found["right"]), f"Written: {given.into}")


if __name__ == "__main__":
    own = argparse.ArgumentParser(prog="python -m bench.one_shot_comparison", description=__doc__)
    own.add_argument("--protocol", default="auto", help="the loop's; see the settings")
    own.add_argument("--part", action="append", dest="parts", choices=list(_PARTS))
    own.add_argument("--way", action="append", dest="ways", choices=list(_WAYS))
    run(main, own, _RESULT)
