"""Search of sessions by the words of their titles, requests and answers.

A session matches if one of its turns, or its title, has all words, in any order and any case. A
word also matches a longer one that begins with it. Code and outputs are not searched.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from typing import Final

from interpreter_bot import values
from interpreter_bot.store import databases

_MAX_WORDS: Final = 12
_MAX_WORD_CHARACTERS: Final = 64
_EXCERPT_CHARACTERS: Final = 160
_CONTEXT_CHARACTERS: Final = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A session that matches a search.

    Attributes:
        title: empty if it has none yet.
        used: time of its last use.
        excerpt: one line of its latest turn with the words, around the first of them; empty if
            only the title has them.
    """

    key: values.SessionKey
    title: str
    used: datetime.datetime
    excerpt: str


async def search(
    database: databases.Database, platform: str, workspace: str, text: str, *, limit: int
) -> tuple[Match, ...]:
    """Return the matching sessions, the most recently used first; none if `text` has no word.

    Raises:
        StoreError: the database cannot be used.
    """
    words = [word[:_MAX_WORD_CHARACTERS] for word in re.findall(r"\w+", text)[:_MAX_WORDS]]
    if not words:
        return ()
    matches = await database.sessions.search(platform, workspace, words, limit=limit)
    return tuple(
        Match(
            key=session.key, title=session.title, used=session.used, excerpt=_excerpt(text, words)
        )
        for session, text in matches
    )


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Return one line of the text, around the first word that it contains."""
    line = " ".join(text.split())
    pattern = "|".join(rf"\b{re.escape(word)}" for word in words)
    match = re.search(pattern, line, re.IGNORECASE)
    # A database may ignore accents, and this pattern does not: the excerpt is then the beginning.
    start = max(match.start() - _CONTEXT_CHARACTERS, 0) if match else 0
    if start:
        start = line.find(" ", start) + 1
    excerpt = line[start : start + _EXCERPT_CHARACTERS]
    return ("… " if start else "") + excerpt + (" …" if start + len(excerpt) < len(line) else "")
