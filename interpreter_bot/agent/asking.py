"""One question to the model: fitted into its window, paid for, heard, counted."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final

from interpreter_bot import settings
from interpreter_bot.agent import (
    budgets,
    failures,
    fitting,
    messages,
    pictures,
    ports,
    prompting,
    tools,
    transcripts,
)

_ANSWER_NOW: Final = (
    "[No more code will be run. Answer the person now, in words, from the outputs above, and say "
    "what is missing.]"
)
_SUMMARY_TOKENS: Final = 500
_SHRINKAGE: Final = 0.6
_TRIES: Final = 3
_WARMEST: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of a question.

    Attributes:
        reply: what the model said; of one that is cut, its text.
        is_cut: the stream ended before the reply did.
        may_call: the model was free to call tools.
        is_last: the budget holds no further step.
    """

    reply: messages.Reply
    is_cut: bool
    may_call: bool
    is_last: bool


class _Silence:
    """Hears what no person shall see."""

    def text(self, delta: str) -> None:
        """Drop it."""

    def code(self, delta: str) -> None:
        """Drop it."""

    def notice(self, sentence: str) -> None:
        """Drop it."""

    def progress(self, text: str, share: float | None) -> None:
        """Drop it."""


class Asking:
    """Asks one model during one turn.

    Attributes:
        heard: what the model has said since whoever uses this last emptied it.
    """

    def __init__(
        self,
        llm: ports.Llm,
        model: settings.Model,
        *,
        budget: budgets.Budget,
        watcher: ports.Watcher,
        cache_key: str = "",
    ) -> None:
        self.heard = ""
        self._cache_key = cache_key
        self._written = 0
        self._llm = llm
        self._model = model
        self._budget = budget
        self._watcher = watcher
        self._window = 1.0
        self._ratio = 1.0
        self._fixed = 0

    def text(self, delta: str) -> None:
        """Hear words."""
        self.heard += delta
        self._written += fitting.text_tokens(delta)
        self._watcher.text(delta)

    def code(self, delta: str) -> None:
        """Hear code."""
        self._written += fitting.text_tokens(delta)
        self._watcher.writing(delta)

    def notice(self, sentence: str) -> None:
        """Hear about the model."""
        self._watcher.notice(sentence)

    def progress(self, text: str, share: float | None) -> None:
        """Hear how far the model is on its way."""
        self._watcher.progress(text, share)

    async def ask(
        self, system: str, transcript: transcripts.Transcript, *, must_answer: bool, setbacks: int
    ) -> Asked | budgets.Objection:
        """Ask once; a transcript that proves too long is made shorter first.

        Args:
            system: the system prompt.
            transcript: what was said; old turns may be summarised.
            must_answer: the model shall call nothing any more.
            setbacks: how often in a row it got nowhere, which makes it answer more freely.

        Raises:
            ModelError: but for CutError.
        """
        schemas = sum(fitting.text_tokens(f"{tool}") for tool in tools.TOOLS)
        self._fixed = fitting.text_tokens(system) + schemas
        for _ in range(_TRIES - 1):
            try:
                return await self._ask(system, transcript, must_answer, setbacks)
            except failures.ContextTooLongError:
                self._window *= _SHRINKAGE
        return await self._ask(system, transcript, must_answer, setbacks)

    async def _ask(
        self, system: str, transcript: transcripts.Transcript, must_answer: bool, setbacks: int
    ) -> Asked | budgets.Objection:
        fitted = await self._fitted(transcript)
        estimate = self._estimate(fitted)
        grant = await self._budget.ask(estimate)
        if isinstance(grant, budgets.Objection):
            return grant
        may_call = not (must_answer or grant.is_last)
        if not may_call:
            fitted = (*fitted, messages.Told(_ANSWER_NOW, is_ours=True))
        prompt = messages.Prompt(
            system=system,
            messages=fitted,
            tools=tools.TOOLS,
            may_call=may_call,
            answer_tokens=min(grant.answer_tokens, self._room_for_answer(estimate)),
            temperature=self._temperature(setbacks),
            cache_key=self._cache_key,
        )
        self._watcher.step(self._budget.spent.steps + 1)
        reply, is_cut = await self._heard(prompt, estimate)
        return Asked(reply=reply, is_cut=is_cut, may_call=may_call, is_last=grant.is_last)

    async def _heard(self, prompt: messages.Prompt, estimate: int) -> tuple[messages.Reply, bool]:
        """Ask, and count what it cost even if it is cut or cancelled in the middle."""
        is_cut = False
        self._written = 0
        try:
            reply = await self._llm.reply(prompt, hearing=self)
        except failures.CutError as error:
            reply, is_cut = error.partial, True
        except asyncio.CancelledError:
            self._charge(messages.Usage(estimate, self._written, is_estimated=True))
            raise
        usage = _counted(reply, estimate, self._written)
        self._charge(usage)
        if not usage.is_estimated:
            # What the server counted tells how wrong our estimates for this model are.
            self._ratio = max(self._ratio, self._ratio * usage.input_tokens / max(estimate, 1))
        return reply, is_cut

    def _charge(self, usage: messages.Usage, *, is_step: bool = True) -> None:
        self._watcher.usage(self._budget.charge(usage, is_step=is_step))

    def _estimate(self, transcript: tuple[messages.Message, ...]) -> int:
        tokens = fitting.tokens(transcript) + fitting.reasoning_tokens(transcript)
        return int((self._fixed + tokens) * self._ratio)

    def _room_for_answer(self, estimate: int) -> int:
        """Say what the window leaves; some servers refuse to be asked for more."""
        window = self._model.context_tokens
        return max(window - estimate, window // 8)

    def _temperature(self, setbacks: int) -> float | None:
        """Vary on retries: at 0, a model shown its error writes the same code again."""
        if not setbacks:
            return self._model.temperature
        return min(max(self._model.temperature or 0.0, 0.4 + 0.2 * setbacks), _WARMEST)

    async def _fitted(self, transcript: transcripts.Transcript) -> tuple[messages.Message, ...]:
        answer = min(self._model.answer_tokens, self._model.context_tokens // 4)
        room = (self._model.context_tokens - answer) * self._window / self._ratio
        most = max(int(room) - self._fixed - _SUMMARY_TOKENS, _SUMMARY_TOKENS)
        fit = fitting.fitted(self._seen(transcript), most)
        if not fit.dropped:
            return fit.kept
        summary = await self._summary(fit.dropped, most)
        transcript.replace(fit, summary)
        return fitting.fitted(self._seen(transcript), most + _SUMMARY_TOKENS).kept

    def _seen(self, transcript: transcripts.Transcript) -> tuple[messages.Message, ...]:
        """Leave out the pictures that the model is not shown, or not any more."""
        choose = pictures.newest if self._model.can_see else pictures.without
        return choose(transcript.entries)

    async def _summary(self, dropped: tuple[messages.Message, ...], most_tokens: int) -> str:
        """Let the model summarise what has to go; where it cannot, a note has to do."""
        if fitting.tokens(dropped) <= _SUMMARY_TOKENS:
            return transcripts.note(dropped)
        text = transcripts.readable(dropped, most_tokens)
        prompt = messages.Prompt(
            system=prompting.read("summary"),
            messages=(messages.Told(text),),
            answer_tokens=_SUMMARY_TOKENS - 100,
        )
        estimate = fitting.text_tokens(text) + fitting.text_tokens(prompt.system)
        grant = await self._budget.ask(estimate)
        if isinstance(grant, budgets.Objection) or grant.is_last:
            return transcripts.note(dropped)
        try:
            reply = await self._llm.reply(prompt, hearing=_Silence())
        except failures.CutError as error:
            # What came of it is not worth much, but costs what it costs.
            self._charge(_counted(error.partial, estimate, 0), is_step=False)
            return transcripts.note(dropped)
        except failures.ModelError:
            # The question itself comes next: if the model is away, that will say so.
            return transcripts.note(dropped)
        self._charge(_counted(reply, estimate, 0), is_step=False)
        if not reply.text.strip():
            return transcripts.note(dropped)
        return f"[What was said before, in short:]\n{fitting.shortened(reply.text.strip(), 3000)}"


def _counted(reply: messages.Reply, read_tokens: int, heard_tokens: int) -> messages.Usage:
    """Return what the server counted, or else an estimate: some count nothing, some say zero.

    Args:
        reply: what was said.
        read_tokens: the estimate of the question.
        heard_tokens: the estimate of what was heard, calls that came to nothing included.
    """
    if reply.usage is not None and reply.usage.tokens:
        return reply.usage
    written = fitting.text_tokens(reply.text)
    written += sum(fitting.text_tokens(call.arguments) for call in reply.calls)
    return messages.Usage(read_tokens, max(written, heard_tokens), is_estimated=True)
