"""Completions of code that a person is writing, as the live kernel of the session finds them.

The kernel's answers are checked, bounded and sanitized as in `live_data_views`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import pydantic

from interpreter_bot import kernel_calls
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import live_data_views
from interpreter_bot.text import safe_text

MAX_CHARACTERS: Final = 4000
"""How much of the code before the cursor is sent to the kernel."""
_MAX_OPTIONS: Final = 200
_MAX_DOC_CHARACTERS: Final = 1500


def _truncate_doc(text: str) -> str:
    return safe_text.truncate(text, _MAX_DOC_CHARACTERS)


class Signature(live_data_views.StrictModel):
    """The signature of a function, and its docstring."""

    label: live_data_views.Text
    doc: Annotated[str, pydantic.AfterValidator(_truncate_doc)]


class Completions(live_data_views.StrictModel):
    """Possible continuations of code.

    Attributes:
        typed: how many characters of each option the person has typed already.
        options: text, kind and description of each option.
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


_COMPLETIONS: Final[pydantic.TypeAdapter[Completions]] = pydantic.TypeAdapter(Completions)


async def complete(
    hosts: host_ports.Hosts, kernel: host_ports.Kernel, code_before_cursor: str
) -> Completions:
    """Let a kernel complete code.

    Args:
        code_before_cursor: the code that the person has written, up to the cursor.

    Raises:
        BotError: the kernel cannot complete it; the sentence says why.
    """
    code = kernel_calls.complete_code(code_before_cursor[-MAX_CHARACTERS:])
    return live_data_views.parse_answer(
        _COMPLETIONS, await live_data_views.run_for_json(hosts, kernel, code)
    )
