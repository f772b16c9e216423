"""interpreter-bot: a self-hosted code interpreter for the chats where teams already talk.

`from interpreter_bot import Interpreter` is the public interface for programs; see docs/api.md.

The largest packages, top to bottom (all are in ARCHITECTURE.md): `cli` parses the command line,
`commands` has one module per command, `app` opens everything once, `doctor` diagnoses the sandbox,
`platforms` translate chat networks, `sessions` decide what happens when, `agent` talks to the
language model, `kernels` run code in a sandbox, `store` is the database, `text` has functions on
text that all of them use. Imports only point down; `values`, `errors`, `settings` and `logs` are
leaves that all may import. `guest` is the exception: it runs inside the sandbox and imports no
other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from interpreter_bot.errors import BotError as InterpreterError
    from interpreter_bot.interpreter import AnswerError, Interpreter, SyncInterpreter
    from interpreter_bot.platforms.program_turns import Answer

__all__ = ["Answer", "AnswerError", "Interpreter", "InterpreterError", "SyncInterpreter"]

_PUBLIC_ATTRIBUTES: Final = {
    "Answer": ("platforms.program_turns", "Answer"),
    "AnswerError": ("interpreter", "AnswerError"),
    "Interpreter": ("interpreter", "Interpreter"),
    "InterpreterError": ("errors", "BotError"),
    "SyncInterpreter": ("interpreter", "SyncInterpreter"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import the public interface when a program first uses it: the bot itself needs none of it."""
    if name not in _PUBLIC_ATTRIBUTES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC_ATTRIBUTES[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
