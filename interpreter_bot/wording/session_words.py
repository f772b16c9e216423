"""A conversation and its Python: reset, undone, copied, continued, ended, deleted."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

_TITLE_CHARACTERS: Final = 80
# By whether variables are those of the last save, and whether files stay.
_BACK: Final = {
    (False, False): "Variables, files and history are",
    (True, False): "Files and history are",
    (False, True): "Variables and history are",
    (True, True): "History is",
}
COPY: Final = (
    "This is a copy of another conversation, with its variables, files and history. Continue here."
)
COPIED: Final = "I copied this conversation to a new thread in this channel."
PRIVATE_THREAD: Final = "This thread is private, and a copy of it would not be."
NO_THREAD_FOR_COPY: Final = "I can't open a thread for a copy here. Try it in another channel."
ENDED_BY_ADMIN: Final = "An admin ended this session: its variables are gone, its files are kept."
DELETED_BY_ADMIN: Final = "An admin deleted this session: variables, files and history are gone."
NO_SUCH_SESSION: Final = "There is no such session."
NOT_YOUR_SESSION: Final = "That session is not yours."
INTERRUPTED: Final = "This answer was interrupted when I was restarted."


def reset(*, files_deleted: bool) -> str:
    files = "deleted" if files_deleted else "kept"
    return f"Reset. Variables and history are cleared; files are {files}."


def undone(request: str, missed_runs: int, files_flaw: str) -> str:
    """Return that an answer was taken back.

    Args:
        request: what was asked; may be empty.
        missed_runs: runs before it that the restored variables know nothing of.
        files_flaw: why files stay as they are, a sentence; empty if they were restored.
    """
    title = quantities.one_line(request, _TITLE_CHARACTERS)
    before = f"before “{title}”" if title else "before the last answer"
    sentences = [f"Undone. {_BACK[bool(missed_runs), bool(files_flaw)]} back to {before}."]
    if missed_runs:
        missed = quantities.count(missed_runs, "earlier run")
        sentences.append(f"Variables were restored from the last save, which misses {missed}.")
    if files_flaw:
        sentences.append(f"Files stay as they are now. {files_flaw}")
    return " ".join(sentences)
