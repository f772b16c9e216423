"""Search for the bot's secrets in answers of hosts, so that none of them reaches code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import h11

from interpreter_bot.egress import policies
from interpreter_bot.wording import network_words

_MIN_SECRET_CHARACTERS: Final = 6
# Statuses of partial content, and of changes since another version (RFC 3229).
_PARTIAL_STATUSES: Final = (206, 226)


def find_secrets(headers: Mapping[str, str]) -> list[str]:
    """Return the secrets in headers: each value, and its last word, as in `Bearer SECRET`."""
    parts = [part for value in headers.values() for part in {value, value.rpartition(" ")[2]}]
    return [part for part in parts if len(part) >= _MIN_SECRET_CHARACTERS]


class SecretFilter:
    """Refuses a stream with secrets, even if they are split over several pieces."""

    def __init__(self, secrets: Sequence[str], host: str) -> None:
        self._secrets = [secret.encode("ascii") for secret in secrets]
        self._host = host
        self._held_back_data = b""

    def check(self, *texts: bytes) -> None:
        """Search whole texts.

        Raises:
            Refusal: a text contains a secret.
        """
        if any(secret in text for secret in self._secrets for text in texts):
            raise policies.Refusal(network_words.holds_secret(self._host), status=502)

    def check_head(self, response: h11.Response) -> None:
        """Search the head of a response, and check that its body can be searched.

        Raises:
            Refusal: it contains a secret, or the body is compressed or partial.
        """
        self.check(bytes(response.reason), *(value for _, value in response.headers))
        codings = {value.lower() for name, value in response.headers if name == b"content-encoding"}
        if self._secrets and codings - {b"identity"}:
            raise policies.Refusal(network_words.answer_compressed(self._host), status=502)
        if self._secrets and response.status_code in _PARTIAL_STATUSES:
            raise policies.Refusal(network_words.answer_partial(self._host), status=502)

    def filter(self, data: bytes) -> bytes:
        """Return the data to pass on; its end is held back if a secret may begin there.

        Raises:
            Refusal: it contains a secret.
        """
        if not self._secrets:
            return data
        data = self._held_back_data + data
        self.check(data)
        held_back_bytes = max(_overlap(data, secret) for secret in self._secrets)
        self._held_back_data = data[len(data) - held_back_bytes :]
        return data[: len(data) - held_back_bytes]

    def flush(self) -> bytes:
        """Return the data that was held back, once the stream has ended."""
        return self._held_back_data


def _overlap(data: bytes, secret: bytes) -> int:
    """Return the length of the longest beginning of a secret at the end of the data."""
    for length in range(min(len(data), len(secret) - 1), 0, -1):
        if data.endswith(secret[:length]):
            return length
    return 0
