"""Completions of code that a person is writing, as the live kernel of the session finds them.

What comes from the kernel is checked, bounded and made harmless: see `live_data_views`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import pydantic

from interpreter_bot import kernel_calls
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import live_data_views
from interpreter_bot.text import safe_text

MAX_CHARACTERS: Final = 4000
"""How much of the code before the cursor the kernel is told."""
_MAX_OPTIONS: Final = 200
_DOC_CHARACTERS: Final = 1500


def _words(text: str) -> str:
    return safe_text.truncate(text, _DOC_CHARACTERS)


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="ignore")


class Signature(_Strict):
    """What a function takes, and what it says of itself."""

    label: live_data_views.Text
    doc: Annotated[str, pydantic.AfterValidator(_words)]


class Completions(_Strict):
    """How code may go on.

    Attributes:
        typed: how many characters of each option are there already.
        options: what may stand there, of which kind it is, and words on it.
        signature: of the function that is being called.
    """

    typed: Annotated[int, pydantic.Field(ge=0, le=MAX_CHARACTERS)] = 0
    options: Annotated[
        tuple[
            tuple[
                live_data_views.Text,
                Literal["class", "function", "namespace", "property", "text"],
                live_data_views.Text,
            ],
            ...,
        ],
        pydantic.Field(max_length=_MAX_OPTIONS),
    ] = ()
    signature: Signature | None = None


_ANSWER: Final[pydantic.TypeAdapter[Completions]] = pydantic.TypeAdapter(Completions)


async def complete(hosts: host_ports.Hosts, kernel: host_ports.Kernel, before: str) -> Completions:
    """Let a kernel say how code may go on.

    Args:
        hosts: where the kernel is.
        kernel: has the variables.
        before: the code up to where somebody writes.

    Raises:
        BotError: it cannot; the sentence says why.
    """
    code = kernel_calls.complete_code(before[-MAX_CHARACTERS:])
    return live_data_views.read_answer(
        _ANSWER, await live_data_views.run_for_json(hosts, kernel, code)
    )
