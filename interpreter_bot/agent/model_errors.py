"""What can go wrong with a model, each with its sentence.

    errors.BotError
    └── ModelError                 the model could not be used
        ├── UnknownChoiceError     no model of that name is configured
        ├── KeyRefusedError        401, 403
        ├── UnknownModelError      404
        ├── MovedError             301, 302, 303, 307, 308
        ├── UnlistedError          a server lists no models, and none is named
        ├── RateLimitedError       429                                  worth a retry
        ├── QuotaError             429 for want of money
        ├── OverloadedError        500 and above                        worth a retry
        ├── UnreachableError       no connection                        worth a retry
        ├── SilentError            a connection, but nothing comes      worth a retry
        ├── GarbledError           what came is no answer               worth a retry
        ├── ContextTooLongError    the transcript is longer than the model's window
        ├── ToolsRefusedError      the model does not know tools
        ├── PicturesRefusedError   the model cannot see
        ├── PictureUnreadableError a picture is none to the server
        ├── TooManyPicturesError   the server takes fewer at once
        ├── RefusedError           the provider's filter says no
        ├── RequestRefusedError    any other 4xx
        └── CutError               it broke off; what was said until then comes along

The agent turns them into endings of a turn; `str(error)` is that ending's sentence.
"""

from __future__ import annotations

import urllib.parse
from typing import ClassVar, Final

from interpreter_bot import errors, settings
from interpreter_bot.agent import chat_messages


class ModelError(errors.BotError):
    """The language model could not be used."""

    is_worth_retrying: ClassVar[bool] = False
    """Whether asking again in a moment may succeed."""

    def __init__(
        self, sentence: str | None = None, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.retry_after_seconds = retry_after_seconds
        """How long the server asked us to wait; None where it did not say."""


class UnknownChoiceError(ModelError):
    """No model of that name is configured."""


class KeyRefusedError(ModelError):
    """The language model's server refused the API key. Ask whoever runs this bot to check it."""


class UnknownModelError(ModelError):
    """The model server does not have this model. Ask whoever runs this bot to check its name."""


class MovedError(ModelError):
    """The model server redirects to another address. Ask whoever runs this bot to set that one."""


class UnlistedError(ModelError):
    """The language model's server lists no models. Ask whoever runs this bot to name one."""


class RateLimitedError(ModelError):
    """The language model is answering too many requests right now. Please try again in a minute."""

    is_worth_retrying = True


class QuotaError(ModelError):
    """The account at the language model's provider is used up. The operator has to look at it."""


class OverloadedError(ModelError):
    """The language model's server has a problem right now. Please try again in a moment."""

    is_worth_retrying = True


class UnreachableError(ModelError):
    """The language model cannot be reached. Try again in a minute."""

    is_worth_retrying = True


class SilentError(ModelError):
    """The language model did not answer in time. Try again in a minute."""

    is_worth_retrying = True


class GarbledError(ModelError):
    """The language model's server answered something that cannot be understood."""

    is_worth_retrying = True


class ContextTooLongError(ModelError):
    """The conversation is longer than the language model can read. Please start a new one."""


class ToolsRefusedError(ModelError):
    """The language model does not support tools."""


class PicturesRefusedError(ModelError):
    """The language model cannot look at pictures."""


class PictureUnreadableError(ModelError):
    """The language model's server could not read a picture."""


class TooManyPicturesError(ModelError):
    """The language model's server takes fewer pictures at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        """How many it takes; at least one."""


class RefusedError(ModelError):
    """The language model's provider refused this request."""


class RequestRefusedError(ModelError):
    """The language model's server did not accept our request. The log says more."""


class CutError(ModelError):
    """The language model's answer broke off in the middle."""

    def __init__(self, partial: chat_messages.ModelReply, sentence: str | None = None) -> None:
        super().__init__(sentence)
        self.partial = partial
        """What had come until then: its text, and no calls, for they may be incomplete."""


_OPERATOR: Final = "Ask whoever runs this bot to"


def server_name(model: settings.Model) -> str:
    """Return the host, and the port if it is named, of a model's server."""
    return urllib.parse.urlsplit(model.base_url).netloc.rpartition("@")[2]


def at_server(error: ModelError, model: settings.Model, *, has_key: bool = True) -> ModelError:
    """Return an error of the same type that names the server, where that helps.

    Args:
        error: what went wrong.
        model: that was asked.
        has_key: a key was sent.
    """
    server = f"The model server at {server_name(model)}"
    match error:
        case KeyRefusedError() if has_key:
            sentence = f"{server} refused the API key. {_OPERATOR} check it."
        case KeyRefusedError():
            sentence = f"{server} wants an API key. {_OPERATOR} give the bot one."
        case UnknownModelError():
            sentence = f'{server} has no model called "{model.name}". {_OPERATOR} check its name.'
        case MovedError():
            sentence = f"{server} redirects to another address. {_OPERATOR} set that one."
        case UnlistedError():
            sentence = f"{server} lists no models. {_OPERATOR} name one."
        case UnreachableError():
            sentence = f"{server} cannot be reached. Try again in a minute."
        case SilentError():
            sentence = f"{server} did not answer in time. Try again in a minute."
        case _:
            return error
    return type(error)(sentence, retry_after_seconds=error.retry_after_seconds)
