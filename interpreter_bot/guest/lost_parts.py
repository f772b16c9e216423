"""Which variables hold a part that was lost, of those that were read back.

The pickler comes to such a part in the first variable only: another one that shares with it what
holds the part refers to what was written already.
"""

from __future__ import annotations

import gc
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import variable_pickler

# References that are followed, in all; it takes less than half a second.
_MOST_REFERENCES = 200_000
_MOST_WORDS = 10


def find(namespace: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return, by the names of variables, the words for what is lost in them.

    Runs no code of the variables' own. What lies behind a great many other objects is not found,
    nor what only a class has.

    Args:
        namespace: in which they were read.
    """
    ids: dict[str, set[int]] = {}
    for one in variable_pickler.all_lost():
        # Code may have put anything there.
        if type(what := one.__dict__.get("_what")) is str:
            ids.setdefault(what, set()).add(id(one))
    found: dict[str, list[str]] = {}
    if ids:
        holders = _holders(namespace)
        for words in list(ids)[:_MOST_WORDS]:
            with_it = _all_above(ids[words], holders)
            for name, value in namespace.items():
                if id(value) in with_it - ids[words]:
                    found.setdefault(name, []).append(words)
    return found


def _holders(namespace: Mapping[str, Any]) -> dict[int, list[int]]:
    """Return, by the id of each object, those of the objects that refer to it."""
    holders: dict[int, list[int]] = {}
    waiting = [value for value in namespace.values() if _may_hold(value)]
    # They are kept meanwhile, so that no other one gets the id of one of them.
    seen = {id(one): one for one in waiting}
    left = _MOST_REFERENCES
    while waiting and left > 0:
        holder = waiting.pop()
        for part in itertools.islice(_parts(holder), left):
            left -= 1
            if part is namespace or not _may_hold(part):
                continue
            holders.setdefault(id(part), []).append(id(holder))
            if id(part) not in seen:
                seen[id(part)] = part
                waiting.append(part)
    return holders


def _all_above(ids: Iterable[int], holders: Mapping[int, list[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(ids)
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting += holders.get(one, ())
    return found


def _may_hold(part: object) -> bool:
    """Whether an object may refer to others of the session. Types and modules lead everywhere."""
    kind = type(part)
    if issubclass(kind, (type, types.ModuleType)):
        return False
    return gc.is_tracked(part) or _is_array_of_objects(part)


def _parts(holder: Any) -> Iterator[Any]:
    if type(holder) is types.FunctionType:
        # Not what it finds by name, which are variables in their own right.
        yield from (holder.__closure__, holder.__defaults__, holder.__kwdefaults__, holder.__dict__)
    elif _is_array_of_objects(holder):
        yield from holder.flat
    else:
        yield from gc.get_referents(holder)


def _is_array_of_objects(part: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and type(part) is numpy.ndarray and part.dtype.hasobject
