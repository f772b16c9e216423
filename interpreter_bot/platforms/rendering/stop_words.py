"""Recognizes messages that ask to stop a running answer, in any chat. Pure."""

from __future__ import annotations

import re
from typing import Final

_VERBS: Final = frozenset({"stop", "cancel", "abort", "halt", "quit"})
_FILLERS: Final = frozenset(
    {
        *("please", "pls", "hey", "ok", "okay", "just", "thanks", "thank", "you", "can", "could"),
        *("it", "this", "that", "now", "immediately", "everything", "all", "running", "the"),
        *("run", "code", "answer", "bot"),
    }
)
_MAX_WORDS: Final = 6
_WORD: Final = re.compile(r"\w+(?:'\w+)?")


def is_stop_request(text: str) -> bool:
    """Return whether a message only asks to stop, such as "please stop it!"."""
    if len(text) > 100:
        return False
    words = _WORD.findall(text.lower())
    verbs = [word for word in words if word in _VERBS]
    fillers = [word for word in words if word not in _VERBS]
    return bool(verbs) and len(words) <= _MAX_WORDS and _FILLERS.issuperset(fillers)
