"""How many plain questions about a table a small model answers right, end to end.

`python -m bench.answer_accuracy --model FILE.gguf`: a real kernel, the real loop, the embedded
model. It takes ten minutes or so, so it is not among what `python -m bench` measures. Every turn is
written down, so that a wrong answer can be looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import json
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bench import machine_descriptions, measured_bots, questions
from interpreter_bot import events, settings, values
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
from interpreter_bot.agent.llms.embedded import on_demand_model
from interpreter_bot.kernels import pools

_RESULT = pathlib.Path(__file__).parent / "results" / "answers.json"
# A day like any other, so that the prompt is the same in every run.
_TODAY = datetime.date(2026, 7, 1)
_MAX_FILE_BYTES = 1_000_000
_STEPS = 10


class Workbench:
    """One session of a pool.

    Attributes:
        pictures: that code showed.
    """

    def __init__(self, pool: pools.Pool, key: str) -> None:
        self.pictures = 0
        self._pool = pool
        self._key = key

    async def run(self, code: str, *, show: ports.Show) -> values.Finished:
        def count_and_show(output: values.Output) -> None:
            self.pictures += isinstance(output, values.Image)
            show(output)

        return await (await self._pool.take(self._key)).execute(code, show=count_and_show)

    async def put(self, name: str, content: bytes) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield content

        await (await self._pool.workspace(self._key)).put(name, chunks())

    async def list_files(self) -> Sequence[values.FileInfo]:
        return await (await self._pool.workspace(self._key)).list()

    async def files(self) -> dict[str, bytes]:
        names = [info.name for info in await self.list_files()]
        limit = _MAX_FILE_BYTES
        return {name: await self.read_file(name, start=0, max_bytes=limit) for name in names}

    async def scaled(self, contents: Sequence[bytes]) -> Sequence[chat_messages.Picture | None]:
        return [None] * len(contents)

    async def read_file(self, name: str, *, start: int, max_bytes: int) -> bytes:
        workspace = await self._pool.workspace(self._key)
        async with workspace.read(name, max_bytes=_MAX_FILE_BYTES) as content:
            whole = b"".join([chunk async for chunk in content])
        return whole[start : start + max_bytes]


def _print_notice(event: events.TurnEvent) -> None:
    if isinstance(event, events.NoticeShown):
        print(f"  {event.text}", flush=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Where questions are asked, and whom."""

    pool: pools.Pool
    llm: ports.Llm
    model: settings.Model


def described(subject: questions.Subject) -> str:
    """Write what a model is told of the file."""
    size = len(subject.content)
    return observations.file(subject.file_name, size, kind="text/csv", details=subject.details)


async def ask(
    means: Means, subject: questions.Subject, question: questions.Question
) -> dict[str, Any]:
    """Take one question through a turn of its own, in a session of its own."""
    key = f"{subject.name}: {question.text}"
    environment = Workbench(means.pool, key)
    await environment.put(subject.file_name, subject.content)
    transcript = transcripts.Transcript()
    transcript.add_user_message(f"{described(subject)}\n\n{question.text}")
    started = time.monotonic()
    outcome = await _turn(means, transcript, environment)
    seconds = time.monotonic() - started
    answer = questions.Answer(
        text=outcome.text, pictures=environment.pictures, files=await environment.files()
    )
    await means.pool.forget(key)
    return {
        "question": question.text,
        "is_right": outcome.ending is loops.OutcomeKind.ANSWERED and question.is_right(answer),
        "ending": str(outcome.ending),
        "answer": outcome.text or outcome.sentence,
        "steps": outcome.spent.steps,
        "tokens": outcome.spent.tokens,
        "seconds": round(seconds, 1),
        "transcript": [chat_messages.to_dict(one) for one in transcript.entries[1:]],
    }


async def _turn(
    means: Means, transcript: transcripts.Transcript, environment: Workbench
) -> loops.Outcome:
    limits = settings.TurnLimits(steps=_STEPS)
    job = loops.TurnSpec(
        llm=means.llm,
        model=means.model,
        limits=limits,
        system=prompt_texts.system(settings.Limits(), today=_TODAY, is_small=means.model.is_small),
        transcript=transcript,
        environment=environment,
        emit=_print_notice,
        budget=budgets.Budget(limits, means.model),
    )
    return await loops.run(job)


async def measure(means: Means, subject: questions.Subject) -> dict[str, Any]:
    """Ask everything of one set; prints as it goes."""
    turns = []
    for question in subject.questions:
        turn = await ask(means, subject, question)
        turns.append(turn)
        mark = "right" if turn["is_right"] else "WRONG"
        print(f"  {mark} {turn['seconds']:5.0f} s, {turn['steps']} steps: {question.text}")
        print(f"        {turn['answer'][:200]!r}", flush=True)
    right = sum(turn["is_right"] for turn in turns)
    print(f"{subject.name}: {right} of {len(turns)} right", flush=True)
    return {"right": right, "total": len(turns), "turns": turns}


@contextlib.asynccontextmanager
async def means(model_path: pathlib.Path, threads: int) -> AsyncIterator[Means]:
    """Open a pool and the embedded model."""
    chosen = settings.EmbeddedModel(model_path=model_path, threads=threads)
    async with contextlib.AsyncExitStack() as stack:
        place = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-")))
        local = await stack.enter_async_context(on_demand_model.OnDemandModel.open(chosen, place))
        catalogue = catalogues.Catalogue(
            [local.model], keys={}, patience=settings.Patience(), servers={local.model.title: local}
        )
        stack.push_async_callback(catalogue.close)
        pool = await stack.enter_async_context(measured_bots.pool(spares=1))
        yield Means(pool=pool, llm=await catalogue.llm(), model=local.model)


async def main(model_path: pathlib.Path, names: Sequence[str], *, threads: int) -> dict[str, Any]:
    """Ask all sets."""
    machine = machine_descriptions.describe()
    async with means(model_path, threads) as opened:
        sets = {name: await measure(opened, questions.SUBJECTS[name]()) for name in names}
    return {"machine": machine, "model": model_path.name, "sets": sets}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.answer_accuracy", description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="the model's GGUF file")
    parser.add_argument("--set", action="append", dest="names", choices=list(questions.SUBJECTS))
    parser.add_argument("--threads", type=int, default=0, help="that compute; 0: one a core")
    parser.add_argument("--into", type=pathlib.Path, default=_RESULT, help="the file to write")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    names = given.names or list(questions.SUBJECTS)
    result = asyncio.run(main(given.model, names, threads=given.threads))
    given.into.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"Written: {given.into}")
