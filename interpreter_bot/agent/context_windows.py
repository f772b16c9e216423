"""Fit a transcript into a model's context window. Pure.

Old outputs are cut to a line or two first. Then whole turns, oldest first, are replaced by a
summary or a note. Last, the present turn itself is shortened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from interpreter_bot.agent import chat_messages

# The approximate cost of a picture at every provider, once it has been scaled down.
_PICTURE_TOKENS: Final = 1100
_MESSAGE_TOKENS: Final = 8
_ASCII_CHARACTERS_PER_TOKEN: Final = 3.2
# Reasoning is mostly encrypted and in base64.
_REASONING_CHARACTERS_PER_TOKEN: Final = 5
_MAX_SHORTENED_CHARACTERS: Final = 300
# The newest outputs are not shortened, as the model is working on them.
_UNSHORTENED_OUTPUTS: Final = 2
# Outputs are shortened in batches, as each change makes the server's cache of all later messages
# useless.
_OUTPUTS_PER_BATCH: Final = 8
# Turns are dropped until only this share of the window is used, so that not every step drops some.
_WINDOW_SHARE_AFTER_DROPPING: Final = 0.6


@dataclasses.dataclass(frozen=True, slots=True)
class FittedTranscript:
    """A transcript that fits.

    Attributes:
        messages: the messages that are left, some of them shortened.
        tokens: the estimated tokens of `messages`.
        dropped_messages: the messages of the turns that were dropped.
    """

    messages: tuple[chat_messages.Message, ...]
    tokens: int
    dropped_messages: tuple[chat_messages.Message, ...] = ()


def estimate_text_tokens(text: str) -> int:
    """Return an upper estimate: a token has a few ASCII characters, or one of any other script."""
    other_characters = 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore"))
    return int((len(text) - other_characters) / _ASCII_CHARACTERS_PER_TOKEN) + other_characters + 1


def estimate_message_tokens(message: chat_messages.Message) -> int:
    """Estimate the tokens of one message."""
    count = _MESSAGE_TOKENS + estimate_text_tokens(message.text)
    if isinstance(message, chat_messages.AssistantMessage):
        return count + sum(
            estimate_text_tokens(call.arguments) + _MESSAGE_TOKENS for call in message.calls
        )
    return count + _PICTURE_TOKENS * len(message.pictures)


def estimate_tokens(transcript: Sequence[chat_messages.Message]) -> int:
    """Estimate the tokens of a transcript."""
    return sum(map(estimate_message_tokens, transcript))


def estimate_reasoning_tokens(transcript: Sequence[chat_messages.Message]) -> int:
    """Estimate the tokens of the last turn's reasoning; earlier reasoning is not sent."""
    characters = 0
    for message in reversed(transcript):
        if isinstance(message, chat_messages.UserMessage) and not message.is_from_bot:
            break
        if isinstance(message, chat_messages.AssistantMessage) and message.reasoning:
            characters += len(message.reasoning.value)
    return characters // _REASONING_CHARACTERS_PER_TOKEN


def fit(transcript: Sequence[chat_messages.Message], max_tokens: int) -> FittedTranscript:
    """Fit a transcript into `max_tokens`."""
    if (count := estimate_tokens(transcript)) <= max_tokens:
        return FittedTranscript(tuple(transcript), count)
    messages = _shorten_outputs(transcript, max_tokens, _UNSHORTENED_OUTPUTS)
    if (count := estimate_tokens(messages)) <= max_tokens:
        return FittedTranscript(tuple(messages), count)
    start = _find_first_fitting_turn(messages, int(max_tokens * _WINDOW_SHARE_AFTER_DROPPING))
    dropped_messages, messages = tuple(transcript[:start]), messages[start:]
    if estimate_tokens(messages) > max_tokens:
        messages = _shorten_outputs(messages, max_tokens, 0)
    messages = _squeeze(messages, max_tokens)
    return FittedTranscript(tuple(messages), estimate_tokens(messages), dropped_messages)


def shorten(text: str, max_characters: int) -> str:
    """Keep the head and the tail of a text, with a note on how much is missing between them."""
    if len(text) <= max_characters:
        return text
    half = max(max_characters // 2, 1)
    missing = len(text) - 2 * half
    return f"{text[:half]}\n[… {missing:,} characters left out …]\n{text[-half:]}"


def _shorten_outputs(
    transcript: Sequence[chat_messages.Message], max_tokens: int, unshortened_count: int
) -> list[chat_messages.Message]:
    """Shorten as many outputs as needed, oldest first, in whole batches."""
    result = list(transcript)
    indexes = [
        i for i, message in enumerate(result) if isinstance(message, chat_messages.ToolResult)
    ]
    excess = estimate_tokens(result) - max_tokens
    for number, index in enumerate(indexes[: max(len(indexes) - unshortened_count, 0)]):
        if excess <= 0 and number % _OUTPUTS_PER_BATCH == 0:
            break
        before = result[index]
        after = chat_messages.ToolResult(
            before.call_id if isinstance(before, chat_messages.ToolResult) else "",
            shorten(before.text, _MAX_SHORTENED_CHARACTERS),
        )
        excess -= estimate_message_tokens(before) - estimate_message_tokens(after)
        result[index] = after
    return result


def _find_first_fitting_turn(transcript: Sequence[chat_messages.Message], max_tokens: int) -> int:
    """Find the earliest turn that fits together with all later ones; the last turn always stays."""
    starts = [
        i
        for i, message in enumerate(transcript)
        if isinstance(message, chat_messages.UserMessage) and not message.is_from_bot
    ]
    for start in starts:
        if estimate_tokens(transcript[start:]) <= max_tokens:
            return start
    return starts[-1] if starts else 0


def _squeeze(
    transcript: list[chat_messages.Message], max_tokens: int
) -> list[chat_messages.Message]:
    """Shorten a single turn: drop its oldest steps, then cut its longest message."""
    while estimate_tokens(transcript) > max_tokens:
        indexes = [
            i
            for i, message in enumerate(transcript)
            if isinstance(message, chat_messages.AssistantMessage)
        ]
        if len(indexes) < 2:
            break
        # A step is dropped together with its tool results: servers refuse one without the other.
        del transcript[indexes[0] : indexes[1]]
    if (excess := estimate_tokens(transcript) - max_tokens) > 0:
        longest = max(range(len(transcript)), key=lambda i: len(transcript[i].text))
        text = transcript[longest].text
        # Every character is at most one token.
        max_characters = max(
            int(len(text) - (excess + 50) * _ASCII_CHARACTERS_PER_TOKEN), _MAX_SHORTENED_CHARACTERS
        )
        transcript[longest] = dataclasses.replace(
            transcript[longest], text=shorten(text, max_characters)
        )
    return transcript
