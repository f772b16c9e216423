"""What a small model had better not see again. Pure.

It clings to what it wrote: with its failed tries before its eyes, it writes another of them,
however warm it is asked. The transcript itself keeps everything.
"""

from __future__ import annotations

from typing import Final

from interpreter_bot.agent import describing, guards, messages
from interpreter_bot.agent.llms import reminding

# The first failure is mended best by looking at it.
_TRIES: Final = 2
_ANEW: Final = (
    "[{count} tries at this failed, the last with {error!r}. Begin anew and take quite another "
    "way: write one ```python block.]"
)
_ERROR_CHARACTERS: Final = 300


def forgotten(transcript: tuple[messages.Message, ...]) -> tuple[messages.Message, ...]:
    """Leave out what only misleads.

    That is code that was refused as a repeat, tries that failed several times in a row, and code
    that found nothing, once it has looked another time.
    """
    shown = _without_nothings(_without_tries(transcript))
    following = (*shown[1:], None)
    return tuple(
        one
        for one, after in zip(shown, following, strict=True)
        if not (isinstance(one, messages.Said) and _is_refusal(after))
    )


def _without_nothings(transcript: tuple[messages.Message, ...]) -> tuple[messages.Message, ...]:
    kept: list[messages.Message] = []
    for one in transcript:
        match (*kept[-3:], one):
            case (
                messages.Said(),
                messages.Answered(text=text),
                messages.Said(calls=(_, *_)),
                messages.Answered(),
            ) if reminding.is_nothing(text):
                del kept[-3:-1]
                # It looked in the same way, for it saw how it had looked.
                if _is_refusal(one):
                    del kept[-1]
                    continue
        kept.append(one)
    return tuple(kept)


def _without_tries(transcript: tuple[messages.Message, ...]) -> tuple[messages.Message, ...]:
    last = transcript[-1] if transcript else None
    # Our own remark may stand behind them; a person's words begin another matter.
    has_remark = isinstance(last, messages.Told) and last.is_ours
    end = start = len(transcript) - has_remark
    while start >= 2 and _is_try(transcript[start - 2], transcript[start - 1]):
        start -= 2
    failures = [one for one in transcript[start:end] if _is_failure(one)]
    if end - start < 2 * _TRIES or not failures:
        return transcript
    lines = failures[-1].text.removesuffix(describing.FAILED).strip().splitlines()
    # Remarks of ours stand in brackets.
    error = next((line for line in reversed(lines) if not line.startswith("[")), "")
    hints = [hint for hint in describing.HINTS if hint in lines]
    told = _ANEW.format(count=len(failures), error=error[:_ERROR_CHARACTERS])
    told = "\n".join([*hints, told])
    return (*transcript[:start], messages.Told(told, is_ours=True), *transcript[end:])


def _is_try(one: messages.Message, after: messages.Message) -> bool:
    return isinstance(one, messages.Said) and (_is_failure(after) or _is_refusal(after))


def _is_failure(one: messages.Message) -> bool:
    return isinstance(one, messages.Answered) and one.text.endswith(describing.FAILED)


def _is_refusal(one: messages.Message | None) -> bool:
    return isinstance(one, messages.Answered) and one.text.startswith(guards.REFUSAL)
