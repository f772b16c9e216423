"""Names of a kernel's variables, as reported after each execution. Pure.

Hostile code may have made them up, and people and models see them. So only a bounded number of
valid Python identifiers of a bounded length is accepted.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Mapping
from typing import Final

_MAX_NAMES: Final = 30
_MAX_READ: Final = 100
_MAX_COUNTED: Final = 1000
_NAME_CHARACTERS: Final = 40
# Letters, digits and the underscore, of scripts that are written from left to right. Others could
# reverse the sentence that contains a name, and combining marks could pile up on it.
_DIRECTIONS: Final = frozenset({"L", "EN", "ON"})


@dataclasses.dataclass(frozen=True, slots=True)
class VariableNames:
    """Defined names.

    Attributes:
        names: the latest first.
        more: number of other names.
    """

    names: tuple[str, ...] = ()
    more: int = 0


def read(content: Mapping[str, object]) -> VariableNames | None:
    """Read the names of a reply; None if it has none in a valid form."""
    fields = content.get("variables")
    if not isinstance(fields, dict):
        return None
    listed, count = fields.get("names"), fields.get("count")
    if not isinstance(listed, list) or type(count) is not int:
        return None
    names = tuple(dict.fromkeys(name for name in listed[:_MAX_READ] if _is_harmless(name)))
    count = min(max(count, len(names)), _MAX_COUNTED)
    first_names = names[:_MAX_NAMES]
    return VariableNames(first_names, count - len(first_names))


def _is_harmless(name: object) -> bool:
    return (
        isinstance(name, str)
        and len(name) <= _NAME_CHARACTERS
        and name.isidentifier()
        and all(unicodedata.bidirectional(letter) in _DIRECTIONS for letter in name)
    )
