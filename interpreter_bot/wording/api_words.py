"""The HTTP interface: what programs are told, which their people read too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot.text import quantities

NO_PLACE: Final = "There is nothing at this address. GET /v1/openapi.json lists what there is."
TEXT_OR_CODE: Final = "Send either text or code, not both."
NO_QUESTION: Final = "The last message has to be the user's."
OWN_TOOLS: Final = "This model has tools of its own and takes no others: leave out tools."
ONLY_TEXT: Final = "This model answers in Markdown: leave out response_format."
ONLY_DATA_URLS: Final = (
    "Pictures and files have to be data URLs in Base64; nothing is fetched from elsewhere."
)
NO_TOKEN: Final = (
    "A token is needed, as Authorization: Bearer TOKEN. Whoever runs this bot makes one with "
    "`interpreter-bot api add NAME`."
)


def no_model(name: str) -> str:
    return f"There is no such model. GET /v1/models lists them; {name} is the default."


def wrong_body(faults: Iterable[str]) -> str:
    return f"The request is wrong. {'; '.join(faults)}."


def too_large(limit_bytes: int) -> str:
    return f"The request is too large: the limit is {quantities.size(limit_bytes)}."


def files_made(names: Sequence[str]) -> str:
    return f"Files: {', '.join(f'`{name}`' for name in names)}"
