"""The errors of models, each with its sentence.

    errors.BotError
    └── ModelError                 the model could not be used
        ├── UnknownChoiceError     no model of that name is configured
        ├── KeyRefusedError        401, 403
        ├── UnknownModelError      404
        ├── MovedError             301, 302, 303, 307, 308
        ├── NoModelListError       a server lists no models, and the settings name none
        ├── RateLimitedError       429                                  worth a retry
        ├── QuotaError             429 because the account has no money left
        ├── OverloadedError        500 and above                        worth a retry
        ├── UnreachableError       no connection                        worth a retry
        ├── ResponseTimeoutError   a connection, but no answer in time  worth a retry
        ├── MalformedResponseError the answer cannot be read            worth a retry
        ├── ContextTooLongError    the transcript is longer than the model's window
        ├── RefusedError           the provider's filter says no
        ├── RequestRefusedError    any other 4xx; sent again without optional parameters
        └── IncompleteReplyError   the reply broke off; has the part that was received

The agent turns them into outcomes of a turn; `str(error)` is the outcome's sentence.
"""

from __future__ import annotations

import urllib.parse
from typing import ClassVar

from interpreter_bot import errors, settings
from interpreter_bot.agent import chat_messages
from interpreter_bot.wording import model_words


class ModelError(errors.BotError):
    """The model could not be used."""

    is_worth_retrying: ClassVar[bool] = False
    """Whether asking again in a moment may succeed."""

    def __init__(
        self, sentence: str | None = None, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.retry_after_seconds = retry_after_seconds
        """How long the server asked us to wait; None if it did not say."""


class UnknownChoiceError(ModelError):
    """There is no model of that name."""


class KeyRefusedError(ModelError):
    """The model server refused the API key. Ask whoever runs this bot to check it."""


class UnknownModelError(ModelError):
    """The model server does not have this model. Ask whoever runs this bot to check its name."""


class MovedError(ModelError):
    """The model server redirects to another address. Ask whoever runs this bot to set that one."""


class NoModelListError(ModelError):
    """The model server lists no models. Ask whoever runs this bot to name one."""


class RateLimitedError(ModelError):
    """The model gets too many requests right now. Try again in a minute."""

    is_worth_retrying = True


class QuotaError(ModelError):
    """The account at the model's provider is used up. Ask whoever runs this bot to check it."""


class OverloadedError(ModelError):
    """The model server has a problem right now. Try again in a minute."""

    is_worth_retrying = True


class UnreachableError(ModelError):
    """The model cannot be reached. Try again in a minute."""

    is_worth_retrying = True


class ResponseTimeoutError(ModelError):
    """The model did not answer in time. Try again in a minute."""

    is_worth_retrying = True


class MalformedResponseError(ModelError):
    """The model server sent an unreadable answer. Try again in a minute."""

    is_worth_retrying = True


class ContextTooLongError(ModelError):
    """This conversation is too long for the model. Start a new one."""


class RefusedError(ModelError):
    """The model's provider refused this request. Ask in other words."""


class RequestRefusedError(ModelError):
    """The model server rejected the bot's request. The details are in the bot's log."""


class IncompleteReplyError(ModelError):
    """The model's answer broke off in the middle."""

    def __init__(self, partial: chat_messages.ModelReply) -> None:
        super().__init__()
        self.partial = partial
        """The text that was received. Calls are left out, as they may be incomplete."""


def server_name(model: settings.Model) -> str:
    """Return the host of a model's server, and the port if the URL names one."""
    return urllib.parse.urlsplit(model.base_url).netloc.rpartition("@")[2]


def name_server(error: ModelError, model: settings.Model, *, has_key: bool = True) -> ModelError:
    """Return an error of the same type that names the server, if that helps.

    Args:
        error: the error.
        model: the model that was called.
        has_key: whether a key was sent.
    """
    server = server_name(model)
    match error:
        case KeyRefusedError() if has_key:
            sentence = model_words.key_refused(server)
        case KeyRefusedError():
            sentence = model_words.key_needed(server)
        case UnknownModelError():
            sentence = model_words.not_on_server(server, model.name)
        case MovedError():
            sentence = model_words.server_moved(server)
        case NoModelListError():
            sentence = model_words.no_list(server)
        case UnreachableError():
            sentence = model_words.server_unreachable(server)
        case ResponseTimeoutError():
            sentence = model_words.server_silent(server)
        case _:
            return error
    return type(error)(sentence, retry_after_seconds=error.retry_after_seconds)
