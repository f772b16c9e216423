"""Detect lost kernels, and tell people and the model once.

Each execution writes the names of variables, and the kernel that holds them, into the session's row
in the store. If a turn's kernel is not the kernel of the row, the latter was lost: by idleness,
eviction, a crash or a restart of the bot. People and the model are told once which variables were
lost or restored. When a kernel ends, the reason is added to the row, unless the bot ends too.

The row is the JSON of `records.Session.kernel`. Without "kernel", the session has no variables, or
the loss was already announced. Its keys:

    kernel: id of the kernel.
    bot: id of the bot's process that wrote the row.
    names: of the variables, the latest first.
    more: number of further variables.
    runs: number of code runs that were begun in the kernel.
    reason: a sentence why the kernel ended; empty while it lives.
    people: ids of the people whose code ran in the kernel or made variables restored into it.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from interpreter_bot import errors, session_variables, values
from interpreter_bot.agent import chat_messages
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.wording import variable_words

if TYPE_CHECKING:
    # `exec` without a database must not import SQLAlchemy.
    from interpreter_bot.store import databases

_log = logging.getLogger(__name__)

_MAX_SHOWN_NAMES: Final = 8
_MAX_NOTICE_CHARACTERS: Final = 300
_MAX_NOTE_CHARACTERS: Final = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class VariableLoss:
    """Variables that are gone.

    Attributes:
        names: of the variables, the latest first; empty if unknown.
        more_count: number of further variables.
        reason: a sentence why the kernel ended.
        kernel: id of the kernel that held them.
        runs: number of code runs that were begun in that kernel.
        files_sentence: a sentence on the session's files.
    """

    names: tuple[str, ...]
    more_count: int
    reason: str
    kernel: str
    runs: int
    files_sentence: str = variable_words.FILES_KEPT

    @property
    def sentence(self) -> str:
        """One line for people."""
        names = _join_names(
            self.names[:_MAX_SHOWN_NAMES],
            self.more_count + max(len(self.names) - _MAX_SHOWN_NAMES, 0),
        )
        return variable_words.variables_lost(names, self.reason, self.files_sentence)

    @property
    def note(self) -> chat_messages.Note:
        """The same information for a model."""
        names = _join_names(self.names, self.more_count)
        return chat_messages.Note(
            f"[A new Python was started, because the earlier one is gone. {self.reason} What was "
            f"defined or imported there is gone{f': {names}' if names else ''}. Define and "
            f"import what you need again, even if you already ran that code. "
            f"{self.files_sentence}]"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class VariableRestoration:
    """Variables of an earlier kernel that the next kernel starts with.

    Attributes:
        saved: the saved variables, and the variables that could not be saved.
        loss: the loss of the session's last kernel; changes after the save are lost.
        files_sentence: a sentence on the session's files.
    """

    saved: session_variables.SavedVariables
    loss: VariableLoss
    files_sentence: str = ""

    @property
    def sentence(self) -> str:
        """One line for people."""
        if not self.saved.kept_count:
            notice = variable_words.none_saved(self._losses_clause(_MAX_NOTICE_CHARACTERS))
        else:
            exceptions = self._losses_clause(_MAX_NOTICE_CHARACTERS)
            notice = variable_words.variables_restored(
                self._count_clause, self._age_clause, exceptions
            )
        reason = f" {self.loss.reason}" if self._age_clause else ""
        return f"{notice}{reason} {self.files_sentence}".strip()

    @property
    def note(self) -> chat_messages.Note:
        """The same information for a model."""
        age = self._age_clause and f"{self._age_clause}; what changed later is lost"
        return chat_messages.Note(
            f"[A new Python was started, because the earlier one is gone. {self.loss.reason} What "
            f"was defined and imported there is there again{age}."
            f"{self._losses_clause(_MAX_NOTE_CHARACTERS)} {self.files_sentence}".strip()
            + "]"
        )

    @property
    def _age_clause(self) -> str:
        is_same_kernel = self.saved.kernel_id == self.loss.kernel
        unsaved_runs = self.loss.runs - (self.saved.run_count if is_same_kernel else 0)
        if is_same_kernel and unsaved_runs <= 0:
            return ""
        saved_at = datetime.datetime.fromtimestamp(self.saved.saved_at, datetime.UTC)
        later_runs = (
            "the last piece of code"
            if unsaved_runs == 1
            else f"the last {unsaved_runs:,} pieces of code"
        )
        runs_clause = f", before {later_runs} ran" if unsaved_runs > 0 else ""
        return f" as they were on {saved_at:%-d %B at %H:%M} UTC{runs_clause}"

    @property
    def _count_clause(self) -> str:
        saved = self.saved
        total = saved.kept_count + saved.lost_count
        return f" ({saved.kept_count:,} of {total:,})" if saved.lost_count else ""

    def _losses_clause(self, max_characters: int) -> str:
        saved = self.saved
        return _losses_clause(
            "Not kept", saved.lost, saved.lost_count, max_characters
        ) + _losses_clause("In part", saved.partly_saved, saved.partly_saved_count, max_characters)


VariableNotice: TypeAlias = VariableLoss | VariableRestoration
"""What happened to a session's variables, for people and the model."""


class KernelVariables:
    """The variables that a session's kernel holds.

    Args:
        bot: id of this process of the bot.
        save_row: writes the new content of the row.
        person: id of the person whose code runs now.
    """

    def __init__(
        self,
        row: Mapping[str, Any],
        bot: str,
        save_row: Callable[[Mapping[str, Any]], None],
        *,
        person: str = "",
    ) -> None:
        self._row = row
        self._bot = bot
        self._save_row = save_row
        self._person = person

    @property
    def people(self) -> frozenset[str]:
        """Ids of the people whose code ran in the kernel, and may still run there."""
        return frozenset(list_people(self._row))

    def has_unannounced_loss(self, kernel_id: str, loss_reason: str = "") -> bool:
        """Return whether the kernel with the variables is gone, and people do not know it yet.

        Args:
            kernel_id: of the session's present kernel; empty if it has none.
            loss_reason: why the present or the former kernel ended; empty if it lives.
        """
        kernel_of_row = self._row.get("kernel")
        return bool(kernel_of_row) and (kernel_id != kernel_of_row or bool(loss_reason))

    def has_run_in(self, kernel_id: str) -> bool:
        """Return whether code of this session ran in a kernel."""
        return self._row.get("kernel") == kernel_id

    def take_notice(
        self,
        kernel_id: str,
        loss_reason: str = "",
        *,
        saved: session_variables.SavedVariables | None = None,
    ) -> VariableNotice | None:
        """Return a notice on lost variables, once; None if there is nothing to announce.

        Args:
            kernel_id: of the session's present kernel; empty if it has none.
            loss_reason: why the present or the former kernel ended; empty if it lives.
            saved: the variables that the session's present or next kernel starts with.
        """
        if not self.has_unannounced_loss(kernel_id, loss_reason):
            return None
        row = self._row
        names, reason = tuple(row.get("names", ())), row.get("reason", "")
        if kernel_id == row["kernel"] or (loss_reason and not kernel_id):
            reason = loss_reason
        default_reason = (
            variable_words.PYTHON_STOPPED
            if row.get("bot") == self._bot
            else variable_words.BOT_RESTARTED
        )
        # Restored variables may contain code of these people, which may run again.
        self._replace_row({} if saved is None else {"people": list_people(row)})
        loss = VariableLoss(
            names,
            row.get("more", 0),
            reason or default_reason,
            kernel=row["kernel"],
            runs=row.get("runs", 0),
        )
        if saved is not None:
            return VariableRestoration(saved, loss)
        return loss if names or loss.more_count or reason else None

    def note_start(self, kernel_id: str, *, runs: int) -> None:
        """Record that code is about to run, as older snapshots do not include its result."""
        is_same_kernel = self.has_run_in(kernel_id)
        names, more_count = (self._row["names"], self._row["more"]) if is_same_kernel else ([], 0)
        people = sorted({*list_people(self._row), self._person})
        self._note_run(kernel_id, names, more_count, runs=runs, reason="", people=people)

    def note_end(self, kernel_id: str, end: host_ports.ExecutionEnd) -> None:
        """Record the variables of a kernel after an execution, which may have killed it."""
        self._note_run(
            kernel_id,
            list(end.names),
            end.unlisted_count,
            runs=end.run_count,
            reason=end.loss_reason,
            people=list_people(self._row),
        )

    def _note_run(
        self,
        kernel_id: str,
        names: list[str],
        more_count: int,
        *,
        runs: int,
        reason: str,
        people: list[str],
    ) -> None:
        row = {
            "kernel": kernel_id,
            "bot": self._bot,
            "names": names,
            "more": more_count,
            "runs": runs,
            "reason": reason,
            "people": people,
        }
        if row != self._row:
            self._replace_row(row)

    def _replace_row(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._save_row(row)


def list_people(row: Mapping[str, Any]) -> list[str]:
    """Return ids of the people whose code ran in the kernel of a row; an empty id if unknown."""
    return list(row.get("people", [""] if row else []))


async def note_loss(database: databases.Database, loss: host_ports.KernelLoss) -> None:
    """Record why a session's kernel ended, in case the bot ends as well."""
    try:
        session = await database.sessions.find(values.parse_key(loss.key))
        if session is None or session.kernel.get("kernel") != loss.kernel_id:
            return
        row = {**session.kernel, "reason": loss.reason}
        if row["names"] or row["more"]:
            await database.sessions.note_kernel(session.id, row, expected=session.kernel)
    except errors.StoreError:
        _log.exception("why a kernel ended could not be recorded")


def _join_names(names: tuple[str, ...], more_count: int) -> str:
    joined_names = ", ".join(names)
    return (
        f"{joined_names} and {more_count:,} more" if joined_names and more_count else joined_names
    )


def _losses_clause(
    heading: str, entries: Sequence[tuple[str, str]], count: int, max_characters: int
) -> str:
    """Return a sentence with as many entries as fit; an entry is a variable and a reason."""
    shown_entries: list[str] = []
    for name, reason in entries:
        shown_entries.append(f"{name} ({reason})")
        if sum(map(len, shown_entries)) > max_characters:
            break
    more_clause = f" and {count - len(shown_entries):,} more" if count > len(shown_entries) else ""
    return f" {heading}: {', '.join(shown_entries)}{more_clause}." if shown_entries else ""
