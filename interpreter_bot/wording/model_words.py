"""The model: which one answers, what a request may spend, and why there is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.text import quantities

_HOW_TO_CHOOSE: Final = (
    "Whoever runs this bot can choose a model: on the page, in the menu under Model, or with "
    "`interpreter-bot setup`."
)
NO_MODEL: Final = "No model is set up. You can still run your own code with /py CODE."
NO_MODEL_YET: Final = (
    "There is no model yet, but you can run your own code: press Python, or type /py CODE. "
    f"{_HOW_TO_CHOOSE}"
)
SET_BY_OPERATOR: Final = (
    "The models are set where the bot runs, in its environment or its configuration file. Change "
    "them there."
)
ALREADY_CHOSEN: Final = "A model was already set up. Run `interpreter-bot setup` to change it."
NO_ANTHROPIC_SDK: Final = errors.missing_extra("Anthropic's protocol", "anthropic")

# Keys and addresses that people enter.
NOTHING_ENTERED: Final = "Enter a key, an address, or both."
RESERVED_ADDRESS: Final = (
    "That address is reserved for the network and the cloud that the bot's machine is in, so it "
    "cannot be entered here. Whoever runs this bot can set it where the bot runs."
)
SLOW_NAME: Final = (
    "The name in that address could not be looked up in time. Try again, or enter the IP address."
)

# What happens during an answer.
ANSWER_CHECKED: Final = "The model was asked to check this answer, and answers again."
PICTURES_REFUSED: Final = (
    "This model's server did not accept the pictures, so they are described to the model."
)
TOOLS_REFUSED: Final = (
    "This model's server does not accept tools. Code blocks in its answers are run instead."
)

# Why there is no answer.
NO_ANSWER: Final = "The model gave no answer. Ask again."
CODE_MISREAD: Final = "The model tried to run code in a form that the bot cannot read. Ask again."
SAME_CODE: Final = "The model keeps asking for the same code. Ask in other words."
ANSWER_LOST: Final = "The connection to the model was lost in the middle of its answer. Ask again."
ANSWER_TOO_LONG: Final = "The model's answer was too long and was cut off. Ask for a shorter one."

# The demo model.
DEMO_ANSWERS: Final = (
    "A small demo model answers. It runs on the bot's machine, and is often wrong. "
    f"{_HOW_TO_CHOOSE}"
)
DEMO_OFF: Final = "The demo model is switched off (local.enabled)."
NO_DEMO_LIBRARY: Final = errors.missing_extra("The demo model", "local")
DEMO_CRASHES: Final = "The demo model keeps crashing. The details are in the bot's log."
DEMO_ENDS: Final = "The demo model is being stopped."
DEMO_CHECKED: Final = "Looking for the demo model…"
DEMO_STARTS: Final = "Starting the demo model…"
DEMO_NOT_STARTED: Final = "The demo model could not be started. The details are in the bot's log."
DEMO_SLOW: Final = "The demo model did not start in time. Try again in a minute."
DEMO_NEEDS_AVX2: Final = (
    "The demo model cannot run on this machine's processor, which lacks AVX2. Use another model."
)
DEMO_NEEDS_MEMORY: Final = (
    "The demo model was killed while it started, most likely because it needs 2 GiB of memory."
)
NO_CONNECTION: Final = "no connection could be made"
CONNECTION_LOST: Final = "the connection was lost"
NO_ANSWER_IN_TIME: Final = "it did not answer in time"
_MODEL_PATH_VARIABLE: Final = "INTERPRETER_BOT_LOCAL__MODEL_PATH"


def now_used(title: str) -> str:
    return f"This conversation now uses {title}."


def ambiguous_name(name: str, titles: Sequence[str]) -> str:
    return f"Several models are called {name}: {'; '.join(titles)}."


def unknown_model(name: str, titles: Sequence[str]) -> str:
    return f"There is no model {name}. There are: {'; '.join(titles) or 'none'}."


def same_title(title: str) -> str:
    return f"Two models are called {title!r}: give one a `label`."


def bad_key(fault: str) -> str:
    return f"The key {fault}."


def bad_address(fault: str) -> str:
    return f"The address {fault}."


def entry_too_long(limit: int) -> str:
    return f"That is too long: a key or an address has at most {limit:,} characters."


def asked_again_in(wait_seconds: float) -> str:
    return f"The model is busy. Asking again in {quantities.duration(round(wait_seconds))}."


def missing_files(names: Sequence[str]) -> str:
    return f"The answer links to files that do not exist: {', '.join(names)}."


def out_of_time(seconds: float) -> str:
    return f"This took longer than the {quantities.duration(seconds)} that a request may take."


def out_of_steps(limit: int) -> str:
    return f"This took all {limit} steps that a request may take."


def out_of_tokens(limit: int) -> str:
    return f"This would need more than the {limit:,} tokens that a request may use."


def out_of_money(limit: object) -> str:
    return f"This would cost more than {limit}, the most for one request."


def keeps_failing(error: str) -> str:
    return (
        f"The code failed again and again ({error}). Ask in other words, or name the columns that "
        "you mean."
    )


def same_error(count: int, error: str) -> str:
    return f"The code failed {count} times with the same error ({error}). Ask in other words."


def no_progress(attempts: int) -> str:
    return f"{attempts} attempts in a row led nowhere. Ask in other words."


_ASK_OPERATOR: Final = "Ask whoever runs this bot to"


def key_refused(server: str) -> str:
    return f"The model server at {server} refused the API key. {_ASK_OPERATOR} check it."


def key_needed(server: str) -> str:
    return f"The model server at {server} needs an API key. {_ASK_OPERATOR} give the bot one."


def not_on_server(server: str, name: str) -> str:
    return (
        f'The model server at {server} has no model called "{name}". '
        f"{_ASK_OPERATOR} check its name."
    )


def server_moved(server: str) -> str:
    return (
        f"The model server at {server} redirects to another address. {_ASK_OPERATOR} set that one."
    )


def no_list(server: str) -> str:
    return f"The model server at {server} lists no models. {_ASK_OPERATOR} name one."


def server_unreachable(server: str) -> str:
    return f"The model server at {server} cannot be reached. Try again in a minute."


def server_silent(server: str) -> str:
    return f"The model server at {server} did not answer in time. Try again in a minute."


def demo_unreachable(host: str, reason: object) -> str:
    return (
        f"The demo model could not be downloaded from {host}: {reason}. You can still run your own "
        f"code. {_HOW_TO_CHOOSE}"
    )


def demo_damaged(host: str) -> str:
    return f"The file from {host} is not the demo model, so it was deleted. {_HOW_TO_CHOOSE}"


def no_room_for_demo(directory: object, free_bytes: int, needed_bytes: int) -> str:
    return (
        f"There is no room for the demo model: it needs {quantities.size(needed_bytes)}, and "
        f"{directory} has {quantities.size(free_bytes)} free."
    )


def demo_not_stored(directory: object, reason: object) -> str:
    return f"The demo model cannot be stored in {directory}: {reason}."


def demo_unreadable(path: object, reason: object) -> str:
    return f"The demo model's file {path} cannot be read: {reason}."


def not_gguf(path: object) -> str:
    return f"The demo model's file {path} is not a GGUF file."


def not_official(path: object) -> str:
    return (
        f"{path} (from {_MODEL_PATH_VARIABLE}) has the name of the official demo model, and "
        "other content. Rename the file if you want to use it."
    )


def answered_status(status: int, reason: object) -> str:
    return f"it answered {status} {reason}"


def demo_download(size_bytes: int, licence: str) -> str:
    return f"Downloading the demo model ({quantities.size(size_bytes)}). {licence}".strip()
