"""A conversation and its Python: reset, undone, copied, continued, ended, deleted."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

_TITLE_CHARACTERS: Final = 80
_FILES_STAY: Final = "Files stay as they are now."
# By: variables come from the last save; files stay as they are.
_RESTORED_PARTS: Final = {
    (False, False): "Variables, files and history are",
    (True, False): "Files and history are",
    (False, True): "Variables and history are",
    (True, True): "History is",
}
COPY_NOTICE: Final = (
    "This is a copy of another conversation, with its variables, files and history. Continue here."
)
COPY_MADE: Final = "I copied this conversation to a new thread in this channel."
SESSION_BUSY: Final = "Something is still running here. Try again when it is done."
CONVERSATION_EMPTY: Final = "There is nothing in this conversation yet."
EMPTY_MESSAGE: Final = "Your message is empty. Write a question, or send a file with one."
RESET_DONE: Final = "Reset. Variables and history are cleared."

NOTHING_TO_UNDO: Final = "There is nothing to undo."
NOT_LAST: Final = (
    "That is no longer the last answer here, so nothing was undone. To undo the last one, "
    "say undo again."
)
ANSWER_UNDONE: Final = "The last answer was undone."
NOTHING_TO_REBUILD: Final = "Nothing to rebuild: all variables are there."
BEGAN_AS_COPY: Final = (
    "This conversation began as a copy of another one: variables, files and history."
)
IS_COPY: Final = "This conversation is a copy of another one."
QUESTION_GONE: Final = "That question was deleted, or is too old."
BRANCH_PREFIX: Final = "Another branch of this conversation. "
BRANCH_RUNS_AGAIN: Final = (
    "The variables of that time were not saved, so all code up to here runs again. Files are as "
    "they are now."
)
BRANCH_WITHOUT_VARIABLES: Final = "Python starts without variables; files are as they are now."

OPEN_ON_PAGE: Final = "Open on the page"
PAGE_LINK: Final = "Open this conversation on the page"
ABOUT_PAGE_LINK: Final = (
    "Only you see this link. It works once, within five minutes, in one browser."
)
NO_PAGE: Final = (
    "Conversations cannot be opened on the page here. Ask whoever runs this bot to set its public "
    "address."
)
PAGE_LINK_USED: Final = "This link was already used, or has expired. Ask for a new one in the chat."
TABLE_GONE: Final = "That table is no longer there. Run its code again to get all of it."
CELL_CUT_OFF: Final = "The bot was restarted in the middle of this."
STOPPED_BY_PERSON: Final = "Somebody stopped this."

BOT_CLOSING: Final = "The bot is being shut down. Please ask again in a minute."
MESSAGE_TAKEN_UP: Final = "The answer above takes this into account."
REQUEST_WITHDRAWN: Final = "The request was withdrawn before it began."
DELETED_FIRST: Final = "The conversation was deleted before this request began."
MESSAGE_LOST: Final = (
    "The bot was restarted before it got to the last message here. Please send it again."
)
ANSWER_INTERRUPTED: Final = (
    "The bot was restarted in the middle of an answer here. Results so far and saved variables are "
    "kept. Please ask again."
)
TURN_INTERRUPTED: Final = (
    "The bot was restarted in the middle of this answer. Results so far are above; ask again to "
    "continue."
)
ANSWER_CONTINUES: Final = "The bot is restarting. This answer continues when it is back."
KEPT_RUNNING: Final = "This kept running while the bot restarted."
CODE_UNKNOWN: Final = (
    "The bot was restarted, so it is unknown whether this code finished. Variables may be gone."
)
TURN_STOPPED: Final = "Stopped. Variables are kept."
BOT_FAULT: Final = "Something went wrong inside the bot. Results so far are kept."
NO_DATABASE: Final = (
    "The database cannot be used right now. New messages may be missing from the history, and the "
    "model may forget them."
)
REST_IN_HISTORY: Final = "… (the rest is in this conversation's history)"
PLAN_FIRST: Final = "Not run: a plan comes first."
CODE_DECLINED: Final = "Not run: declined."
PRIVATE_THREAD: Final = "This thread is private, and a copy of it would not be."
NO_THREAD_FOR_COPY: Final = "I can't open a thread for a copy here. Try it in another channel."
ENDED_BY_ADMIN: Final = "An admin ended this session: its variables are gone, its files are kept."
DELETED_BY_ADMIN: Final = "An admin deleted this session: variables, files and history are gone."
OUTPUT_UNWATCHED: Final = "Nobody sees the output of this code any more."
NO_SUCH_SESSION: Final = "There is no such session."
NOT_YOUR_SESSION: Final = "That session is not yours."


def reset_done(*, files_deleted: bool) -> str:
    files = "deleted" if files_deleted else "kept"
    return f"Reset. Variables and history are cleared; files are {files}."


def answer_undone(request: str, missed_runs: int, files_notice: str) -> str:
    """Return that an answer was taken back.

    Args:
        request: what was asked; may be empty.
        missed_runs: how many runs before it the restored variables do not include.
        files_notice: why files stay as they are, a sentence; empty if they were restored.
    """
    title = quantities.one_line(request, _TITLE_CHARACTERS)
    moment = f"before “{title}”" if title else "before the last answer"
    sentences = [
        f"Undone. {_RESTORED_PARTS[bool(missed_runs), bool(files_notice)]} back to {moment}."
    ]
    if missed_runs:
        missed = quantities.count(missed_runs, "earlier run")
        sentences.append(f"Variables were restored from the last save, which misses {missed}.")
    if files_notice:
        sentences.append(f"{_FILES_STAY} {files_notice}")
    return " ".join(sentences)


def message_too_long(limit: int) -> str:
    return f"This message is too long: the limit is {limit:,} characters. Send the text as a file."


def queue_full(count: int) -> str:
    return f"The queue of this conversation is full: {count} waiting. Try again in a minute."


def branch_notice(missed_runs: int, files_notice: str) -> str:
    """Return the first sentences of a branch; the parameters are those of `answer_undone`."""
    if not (missed_runs or files_notice):
        return "Variables and files are as they were before this question."
    variables = (
        "Variables are from shortly before this question; the code that ran in between runs again."
        if missed_runs
        else "Variables are as they were before this question."
    )
    files = f"{_FILES_STAY} {files_notice}" if files_notice else "Files are as they were before it."
    return f"{variables} {files}"


def branch_left_out(pieces: int, limit: int) -> str:
    count = quantities.count(pieces, "piece")
    return (
        f" Of the code, {count} cannot run again, because all of it is longer than {limit:,} "
        "characters. Variables from there are missing."
    )


def nobody_for_input(prompt: str) -> str:
    sentence = "Nobody is there to answer input(), so put the value into the code."
    return f"{sentence} It asked: {prompt}" if prompt else sentence


def idle_warning(since: str, rest: str, *, keeps_variables: bool) -> str:
    stopped = (
        "Python is stopped, and as many variables as possible are saved"
        if keeps_variables
        else "Python is stopped, and its variables are lost"
    )
    return (
        f"Nobody has used the Python of this conversation for {since}. In {rest} {stopped}; files "
        "are kept. To keep Python running, write any message here."
    )


def retention_warning(days: str, rest: str, size_bytes: int) -> str:
    return (
        f"Nobody has used this conversation for {days}. In {rest} its files in /mnt/data, saved "
        f"variables and pictures ({quantities.size(size_bytes)}) are deleted. To keep them, write "
        "any message here."
    )


def retention_deleted(size_bytes: int, reason: str) -> str:
    return (
        "The files of this conversation in /mnt/data, saved variables and pictures "
        f"({quantities.size(size_bytes)}) were deleted: {reason}. Messages stay."
    )


def unused_for(days: str) -> str:
    return f"nobody had used it for {days}"


def person_over_limit(limit_bytes: int) -> str:
    return (
        f"the conversations of one person held more than {quantities.size(limit_bytes)}, and this "
        "one was used least recently"
    )


def all_over_limit(limit_bytes: int) -> str:
    return (
        f"all conversations together held more than {quantities.size(limit_bytes)}, and this one "
        "was used least recently"
    )


def over_quota(subject: str) -> str:
    return (
        f"This would be more than the {subject} that one person may use in a day. It resets at "
        "midnight UTC. Code that you run yourself costs nothing."
    )


def taken_up(text: str) -> str:
    return f"Taken into account: {quantities.one_line(text, 200)}"
