"""Count the plain questions about a table that a small model answers correctly, end to end.

`python -m bench.answer_accuracy --url http://127.0.0.1:8911/v1 --model NAME` uses a real
kernel, the real agent loop and a model on a server of this machine. It takes about ten minutes, so
`python -m bench` leaves it out. Wrong answers are printed with their code.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import json
import pathlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bench import machine_descriptions, measured_bots, questions
from interpreter_bot import errors, events, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    loops,
    observations,
    ports,
    prompt_texts,
    transcripts,
)
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.kernels import pools

_RESULT = pathlib.Path(__file__).parent / "results" / "answers.json"
# A fixed day, so that the prompt is the same in every run.
_TODAY = datetime.date(2026, 7, 1)
_MAX_FILE_BYTES = 1_000_000
_MAX_STEPS = 10
_CONTEXT_TOKENS = 8192
_ANSWER_TOKENS = 1024
# A small model on a busy machine reads a prompt slowly.
_MAX_SILENCE_SECONDS = 1800


class Workbench:
    """One session of a pool.

    Attributes:
        picture_count: how many pictures the code showed.
    """

    def __init__(self, pool: pools.Pool, key: str) -> None:
        self.picture_count = 0
        self._pool = pool
        self._key = key

    async def run(
        self, code: str, *, show: ports.Show, seconds: float | None = None
    ) -> values.Finished:
        def count_and_show(output: values.Output) -> None:
            self.picture_count += isinstance(output, values.Image)
            show(output)

        return await (await self._pool.take(self._key)).execute(code, show=count_and_show)

    async def ask_person(self, question: str, choices: tuple[str, ...]) -> str:
        raise errors.UnansweredError

    async def put(self, name: str, content: bytes) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield content

        await (await self._pool.workspace(self._key)).put(name, chunks())

    async def list_files(self) -> Sequence[values.FileInfo]:
        return await (await self._pool.workspace(self._key)).list()

    async def read_files(self) -> dict[str, bytes]:
        workspace = await self._pool.workspace(self._key)
        contents = {}
        for info in await workspace.list():
            async with workspace.read(info.name, max_bytes=_MAX_FILE_BYTES) as content:
                contents[info.name] = b"".join([chunk async for chunk in content])
        return contents

    async def scale_pictures(
        self, contents: Sequence[bytes]
    ) -> Sequence[chat_messages.Picture | None]:
        return [None] * len(contents)


def _print_notice(event: events.TurnEvent) -> None:
    if isinstance(event, events.NoticeShown):
        print(f"  {event.text}", flush=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The tested model, and the pool that runs its code."""

    pool: pools.Pool
    llm: ports.Llm
    model: settings.Model


def describe_table(subject: questions.Subject) -> str:
    """Describe the file as the bot describes it to a model."""
    size = len(subject.content)
    return observations.describe_file(
        subject.file_name, size, kind="text/csv", details=subject.details
    )


async def ask(
    resources: Resources, subject: questions.Subject, question: questions.Question
) -> dict[str, Any]:
    """Ask one question in a new session and check the answer."""
    key = f"{subject.name}: {question.text}"
    environment = Workbench(resources.pool, key)
    await environment.put(subject.file_name, subject.content)
    transcript = transcripts.Transcript()
    transcript.add_user_message(f"{describe_table(subject)}\n\n{question.text}")
    start_time = time.monotonic()
    outcome = await _run_turn(resources, transcript, environment)
    seconds = time.monotonic() - start_time
    answer = questions.Answer(
        text=outcome.text,
        picture_count=environment.picture_count,
        files=await environment.read_files(),
    )
    await resources.pool.forget(key)
    is_right = outcome.kind is loops.OutcomeKind.ANSWERED and question.is_right(answer)
    print(f"  {'right' if is_right else 'WRONG'} {seconds:5.0f} s: {question.text}")
    print(f"        {(outcome.text or outcome.sentence)[:200]!r}", flush=True)
    if not is_right:
        for message in transcript.entries[1:]:
            print(f"        {chat_messages.to_dict(message)}", flush=True)
    return {
        "question": question.text,
        "is_right": is_right,
        "steps": outcome.usage.steps,
        "tokens": outcome.usage.tokens,
        "seconds": round(seconds, 1),
    }


async def _run_turn(
    resources: Resources, transcript: transcripts.Transcript, environment: Workbench
) -> loops.Outcome:
    limits = settings.TurnLimits(steps=_MAX_STEPS)
    spec = loops.TurnSpec(
        llm=resources.llm,
        model=resources.model,
        limits=limits,
        system=prompt_texts.build_system_prompt(
            settings.Limits(), today=_TODAY, is_small=resources.model.is_small
        ),
        transcript=transcript,
        environment=environment,
        emit=_print_notice,
        budget=budgets.Budget(limits, resources.model),
    )
    return await loops.run(spec)


async def measure(resources: Resources, subject: questions.Subject) -> dict[str, Any]:
    """Ask all questions about one table; print each outcome."""
    turns = [await ask(resources, subject, question) for question in subject.questions]
    right_count = sum(turn["is_right"] for turn in turns)
    print(f"{subject.name}: {right_count} of {len(turns)} right", flush=True)
    return {"right": right_count, "total": len(turns), "turns": turns}


@contextlib.asynccontextmanager
async def open_resources(url: str, name: str, protocol: Any) -> AsyncIterator[Resources]:
    """Open a pool, and a client of the model's server."""
    model = settings.Model(
        name=name,
        base_url=url,
        api_key_variable="",
        protocol=protocol,
        context_tokens=_CONTEXT_TOKENS,
        answer_tokens=_ANSWER_TOKENS,
        temperature=0.0,
    )
    patience = settings.Patience(silence_seconds=_MAX_SILENCE_SECONDS)
    async with contextlib.AsyncExitStack() as stack:
        catalogue = catalogues.Catalogue([model], keys={}, patience=patience)
        stack.push_async_callback(catalogue.close)
        pool = await stack.enter_async_context(measured_bots.open_pool(spares=1))
        yield Resources(pool=pool, llm=await catalogue.open_llm(), model=model)


async def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Ask about all requested tables."""
    machine = machine_descriptions.describe()
    names = arguments.names or list(questions.SUBJECTS)
    async with open_resources(arguments.url, arguments.model, arguments.protocol) as resources:
        results = {name: await measure(resources, questions.SUBJECTS[name]()) for name in names}
    return {
        "machine": machine,
        "model": arguments.model,
        "right": {name: f"{entry['right']} of {entry['total']}" for name, entry in results.items()},
        "sets": results,
    }


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.answer_accuracy", description=__doc__)
    parser.add_argument("--url", required=True, help="the base URL of the model's server")
    parser.add_argument("--model", required=True, help="the model's name on the server")
    parser.add_argument("--protocol", default="auto", help="see the settings of models")
    parser.add_argument("--set", action="append", dest="names", choices=list(questions.SUBJECTS))
    parser.add_argument("--into", type=pathlib.Path, default=_RESULT, help="the file to write")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _parse_arguments()
    result = asyncio.run(main(chosen))
    chosen.into.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps(result["right"]), f"Written: {chosen.into}")
