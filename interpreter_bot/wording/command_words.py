"""Commands in chats: what they do, what they answer, and help."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from interpreter_bot.text import quantities

_PLACE_PHRASES: Final = (("web", "on the page"), ("console", "in the terminal"))
RUN_TITLE: Final = "Run Python"
YOUR_CODE: Final = "Your code"
RUN_MESSAGE: Final = "Run this message"
ASK_ABOUT_MESSAGE: Final = "Ask about this message"
ASK_TITLE: Final = "Ask about this"
YOUR_QUESTION: Final = "What do you want to know?"
NO_CODE: Final = "There is no code in this message: no code block and no Python snippet."
MESSAGE_GONE: Final = "This message no longer exists."
ANSWER_TOO_OLD: Final = "That answer is too old to show."
NO_CONVERSATION: Final = "There is no such conversation here."
CODE_OF_ANSWER: Final = "The code I ran for that answer:"
STOPPING: Final = "Stopping."
NO_DIRECT_MESSAGE: Final = (
    "This is for you alone, and I can't send you direct messages. Use `/interpreter` instead."
)
OUTDATED_BUTTON: Final = "This button is from another version of me. Use a newer one, or ask again."
OUTDATED_FORM: Final = "This form is from another version of me. Please open it again."
RESTARTING: Final = "I am about to restart. Please try again in a minute."
THANKS: Final = "Thanks for the feedback."
DEFAULT_VALUE: Final = "default"
SCHEDULES: Final = "Schedules"
SCHEDULE_RUNS: Final = "Runs, the latest first"
FILES_TITLE: Final = "Files in /mnt/data"
CODE_LIMITS: Final = "What your code may use"
FILE_SENT_HERE: Final = "A file I send here"
DESCRIBE_UPLOAD: Final = "Look at what I sent and tell me what it is."

RESET_QUESTION: Final = "Reset? Variables are cleared; files are kept."
RESET_FILES_QUESTION: Final = "Reset, and delete all files of this conversation?"
UNDO_QUESTION: Final = "Undo the last answer? Variables, files and history go back to before it."

SLACK_INTRODUCTION: Final = (
    "Mention me with a question, or send me a file in a direct message; I write Python, run it and "
    "show the result. Variables stay alive within a thread."
)
SLACK_INTRODUCTION_WITHOUT_MODEL: Final = (
    "I run your Python and show the result. Variables stay alive within a thread."
)
SLACK_USAGE: Final = (
    "Send me these in a thread, or after `/interpreter` for the channel's own Python. `/py` alone "
    'opens an editor. On a message, "Run this message" runs it, and "Ask about this message" asks '
    "me about it. Edit your message and I'll answer again. AI can be wrong: check what matters."
)


def discord_help(commands: str) -> str:
    return (
        "**I run Python** in a sandbox with the usual data libraries, and keep its variables and "
        "files for as long as a conversation lasts.\n"
        "• Mention me in a channel: I open a thread, and the thread is the conversation.\n"
        "• Write to me directly, with files if you like.\n"
        "• `/py code:` runs code as it is; `/py` alone opens an editor and takes files.\n"
        "• On any message: Apps → *Run this message* or *Ask about this message*.\n"
        "• Edit your message, and I'll answer again.\n"
        f"• `/interpreter` has: {commands}."
    )


def write_command_as(usage: str) -> str:
    return f"Please write it as {usage}."


def takes_no_arguments(name: str) -> str:
    return f"/{name} takes nothing after it."


def works_elsewhere(name: str, platforms: Container[str]) -> str:
    place = next(
        (phrase for platform, phrase in _PLACE_PHRASES if platform in platforms), "in chats"
    )
    return f"/{name} works {place}, not here."


def unknown_command(name: str, similar_name: str) -> str:
    hint = f"Did you mean /{similar_name}?" if similar_name else "Type /help for a list."
    return f"There is no command /{name}. {hint}"


def not_offered(name: str) -> str:
    return f"/{name} is not available here."


def running_elsewhere(links: str, hidden_count: int) -> str:
    suffix = f" and {quantities.count(hidden_count, 'other place')}" if hidden_count else ""
    return f"That is running in {links}{suffix}. Say stop there."


def more_lines(count: int) -> str:
    return f"… and {count:,} more"


def run_by(name: str) -> str:
    return f"**{name}** ran:"
