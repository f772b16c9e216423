"""Attempts to save variables as a generation: written and read back in children, until it holds.

A variable that ends a child, or does not come back, is left out of the next attempt; the first one
that fails only: what follows it often fails for its lack. What the last attempt wrote is read until
nothing fails but what is left out when it is brought back, too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import time
import types
from collections.abc import Container
from typing import Any

from . import (
    lost_parts,
    snapshot_children,
    snapshot_files,
    snapshot_manifests,
    snapshot_readers,
    snapshot_writers,
    variable_pickler,
)

_MOST_ATTEMPTS = 10
# Of the time for saving: what the child that was at a variable may take to finish it.
_GRACE_SHARE = 0.25
# Of the same: for reading again without the variables that did not come back the last time.
_LAST_CHECKS_SHARE = 0.5

_DIED = "saving it ended Python"
_UNREADABLE = "reading it back ended Python"
_UNTRIED = "it was not tried, as too many others failed"
_ALIKE = "it was not tried, as two others of its type could not be saved"


class Attempts:
    """All attempts to save one generation.

    Args:
        namespace: the session's.
        names: of its variables.
        directory: of its snapshots.
        number: of the generation.
        seconds: after which no further variable is begun.
        most_bytes: that all pickles and buffers may have.
        key: encrypts all of it, if there is one.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        names: list[str],
        directory: str,
        number: int,
        *,
        seconds: float,
        most_bytes: int,
        key: bytes,
    ) -> None:
        self._namespace, self._names = namespace, names
        self._directory, self._number, self._key = directory, number, key
        self._seconds, self._most_bytes = seconds, most_bytes
        self._deadline = time.monotonic() + seconds
        self._end = self._deadline + seconds * _GRACE_SHARE
        self._lost: dict[str, str] = {}
        self._ended_kinds: list[type] = []

    def save(self) -> None:
        """Save what can be saved in time.

        Raises:
            OSError: the system refused something.
            RuntimeError: no variable was reached, but for imports and definitions. What was saved
                earlier is worth more.
        """
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            # Both in one child: to fork many variables takes longer than to read them.
            written, checked = snapshot_children.ask(
                (self._write, self._end - time.monotonic()), (self._check, self._seconds)
            )
            # The next one replaces what this one wrote, and is to come as far: the variable that
            # took longest may take but a share of the time that is left when it begins.
            left = self._deadline - time.monotonic()
            waited = written.longest_seconds * (1 / snapshot_writers.SHARE - 1)
            needed = written.seconds + waited + checked.seconds
            is_over = written.is_late or left < needed
            is_last = left < needed or attempt == _MOST_ATTEMPTS
            failed = _failures(checked) if written.is_done else {}
            if not written.is_done:
                self._note_end(written)
            if is_last or (written.is_done and not failed):
                self._settle(written, checked, snapshot_writers.TOO_LATE if is_over else _UNTRIED)
                return
            self._lost |= dict(itertools.islice(failed.items(), 1))

    def _write(self, tell: snapshot_children.Tell) -> object:
        files = snapshot_files.Writer(self._directory, self._number, self._most_bytes, self._key)
        writer = snapshot_writers.SnapshotWriter(self._namespace, self._names, files, tell)
        writer.write(self._lost, self._deadline, self._end)
        return writer

    def _check(self, tell: snapshot_children.Tell, skipped: Container[str] = ()) -> object:
        """Read what was written into a namespace of its own, as another kernel will."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        variable_pickler.forget_classes()
        reader = snapshot_readers.SnapshotReader(
            *(self._directory, self._number, module.__dict__),
            key=self._key,
            skipped=skipped,
            is_check=True,
        )
        at = ""
        for name in itertools.chain(reader.variables(), [""]):
            if at in reader.failed:
                tell({"failed": at, "why": reader.failed[at]})
            elif at in reader.partly:
                tell({"unread": reader.partly[at], "of": at})
            if at := name:
                tell({"at": at})
        with contextlib.suppress(MemoryError):
            # No variable is lost for want of these words.
            for name, words in lost_parts.find(module.__dict__).items():
                tell({"unread": words, "of": name})
        return reader

    def _note_end(self, written: snapshot_children.Told) -> None:
        """Leave out from now on what an attempt to write ended at, and what it had lost before."""
        self._lost |= {one["lost"]: one["why"] for one in written.messages if "lost" in one}
        is_anew = any("anew" in one for one in written.messages)
        if is_anew and (written.is_late or written.error):
            return
        self._lost |= _ended_at(written, _DIED)
        kind = type(self._namespace.get(written.at))
        is_second = any(kind is one for one in self._ended_kinds)
        if is_second and not snapshot_writers.holds_others(kind):
            # Each would cost another attempt.
            begun = {one.get("at") for one in written.messages}
            untried = [name for name in self._names if name not in begun]
            alike = [name for name in untried if type(self._namespace[name]) is kind]
            self._lost = dict.fromkeys(alike, _ALIKE) | self._lost
        self._ended_kinds.append(kind)

    def _settle(
        self, written: snapshot_children.Told, checked: snapshot_children.Told, why: str
    ) -> None:
        """Let count what the last attempt wrote, if it came far enough.

        Args:
            written: what it told.
            checked: what it told of reading that; nothing if it did not come to the end before.
            why: what it did not come to is lost.
        """
        ended = {one.get("kept", one.get("lost")) for one in written.messages}
        if not written.is_done:
            (checked,) = snapshot_children.ask((self._check, self._seconds))
        messages = [*written.messages, *checked.messages]
        failed = _failures(checked)
        unread = self._check_again(messages, failed) if failed else {}
        self._check_reached(messages, failed, unread)
        lost = {name: why for name in self._names if name not in ended} | self._lost
        snapshot_manifests.write(
            *(self._directory, self._number, messages, lost, failed, self._key)
        )

    def _check_reached(
        self,
        messages: list[snapshot_children.Message],
        failed: dict[str, str],
        unread: dict[str, str],
    ) -> None:
        """Check that there is more than imports and definitions, or that nothing else waited.

        Where there are only such, one of them does.

        Args:
            messages: of who wrote.
            failed: what was written but not read.
            unread: of that, what waited until there was no time left.

        Raises:
            RuntimeError: what was saved earlier is worth more.
        """
        kept = {one.get("kept") for one in messages} - failed.keys()
        lost = {one["lost"]: one["why"] for one in messages if "lost" in one}
        late = {name for name, why in lost.items() if why == snapshot_writers.TOO_LATE}
        tried = (lost.keys() | self._lost.keys() | failed.keys()) - late - unread.keys()
        worked_out = {
            name for name in self._names if snapshot_writers.is_worked_out(self._namespace[name])
        }
        for wanted in (worked_out, set(self._names)):
            if wanted - tried and not wanted & kept:
                raise RuntimeError("no variable was reached")

    def _check_again(
        self, messages: list[snapshot_children.Message], failed: dict[str, str]
    ) -> dict[str, str]:
        """Read once more without what failed, as `restore` will, until nothing else fails.

        What shared a part with that has it no more, and may fail for it. Where the time is over
        before that, what is behind the first of those that failed last fails as well.

        Args:
            messages: of who wrote, and of the check before; takes those of further ones.
            failed: then; takes what fails.

        Returns:
            What fails for that, and why.
        """
        deadline = time.monotonic() + self._seconds * _LAST_CHECKS_SHARE
        more = dict(failed)
        while more and (left := deadline - time.monotonic()) > 0:
            check = functools.partial(self._check, skipped=failed)
            (checked,) = snapshot_children.ask((check, left))
            if not checked.at:
                break
            messages += checked.messages
            more = _failures(checked)
            failed |= more
        # All that was written is behind the state of the process.
        kept = [snapshot_readers.STATE, *(one["kept"] for one in messages if "kept" in one)]
        behind = itertools.dropwhile(lambda name: name not in more, kept if more else ())
        unread = dict.fromkeys(
            (name for name in behind if name not in failed), snapshot_writers.TOO_LATE
        )
        failed |= unread
        return unread


def _ended_at(told: snapshot_children.Told, died: str) -> dict[str, str]:
    """Return what a child was at when it ended, and why it did.

    Raises:
        OSError: the system refused something, which is no variable's fault.
        RuntimeError: it was at nothing yet.
    """
    why = told.error or (snapshot_writers.TOO_LATE if told.is_late else died)
    if told.errno is not None:
        raise OSError(told.errno, why)
    if not told.at:
        raise RuntimeError(f"nothing was begun: {why}")
    return {told.at: why}


def _failures(checked: snapshot_children.Told) -> dict[str, str]:
    """Return what a check says that did not come back, or what it ended at, and why."""
    failed = {one["failed"]: one["why"] for one in checked.messages if "failed" in one}
    return failed if checked.is_done else failed | _ended_at(checked, _UNREADABLE)
