"""The HTTP interface: what programs are told, which their people read too."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from interpreter_bot.text import quantities

_MAX_LISTED_FAULTS: Final = 5
NO_SUCH_ADDRESS: Final = (
    "There is nothing at this address. GET /v1/openapi.json lists what there is."
)
UNKNOWN_PART: Final = "A message has parts of another kind than text, image_url and file."
TEXT_OR_CODE: Final = "Send either text or code, not both."
NO_QUESTION: Final = "The last message has to be the user's."
TOO_MANY_VALUES: Final = "The request is too large: it has too many parts."
TAKES_NO_TOOLS: Final = "This model has tools of its own and takes no others: leave out tools."
ONLY_TEXT: Final = "This model answers in Markdown: leave out response_format."
ONLY_DATA_URLS: Final = (
    "Pictures and files have to be data URLs in Base64; nothing is fetched from elsewhere."
)
SERVER_BUSY: Final = (
    "Too much is being sent to this bot at the moment. Send the request again in a minute."
)
NO_TOKEN: Final = (
    "A token is needed, as Authorization: Bearer TOKEN. Whoever runs this bot makes one with "
    "`interpreter-bot api add NAME`."
)


def no_model(name: str) -> str:
    return f"There is no such model. GET /v1/models lists them; {name} is the default."


def fault_phrases(details: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a phrase for each of pydantic's first faults; what was given is not repeated."""
    # Within one line each: a name may be of any length.
    names = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in details)
    phrases = (
        f"{quantities.one_line(name, 60)}: {message}" if name else message
        for name, message in names
    )
    return list(itertools.islice(phrases, _MAX_LISTED_FAULTS))


def wrong_request(fault_phrases: Iterable[str]) -> str:
    return f"The request is wrong. {'; '.join(fault_phrases)}."


def too_large(limit_bytes: int) -> str:
    return f"The request is too large: the limit is {quantities.size(limit_bytes)}."


def client_busy(limit: str) -> str:
    return (
        f"Your requests that are not answered yet have more than {limit} together. Send this one "
        "again when some of them are answered."
    )


def too_many_sessions(limit: int) -> str:
    return f"You have {limit:,} sessions, which is the limit. Delete some that you no longer need."


def too_many_files(limit: int) -> str:
    return f"A message may have at most {limit:,} pictures or files."


def files_made(names: Sequence[str]) -> str:
    return f"Files: {', '.join(f'`{name}`' for name in names)}"
