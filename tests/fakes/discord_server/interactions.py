"""Interactions: their answers, and Discord's limits of three seconds and fifteen minutes."""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import Any

from tests.fakes.discord_server import rules, worlds

COMMAND, COMPONENT, AUTOCOMPLETE, MODAL = 2, 3, 4, 5
_ANSWERS = {COMMAND: {4, 5, 9}, COMPONENT: {4, 5, 6, 7, 9}, AUTOCOMPLETE: {8}, MODAL: {4, 5, 6, 7}}


@dataclasses.dataclass(eq=False)
class Interaction:
    """A command, a click, an autocompletion or a submitted modal.

    Attributes:
        is_user_install: whether the person, not the guild, has installed the bot; it may then only
            answer interactions.
        user_limit: the largest file that the person may send, by their subscription.
        answer: the type of the first answer; 0 before it.
        original: the message that the first answer made, or the message with the button.
        modal: the modal that the first answer opened.
        choices: the choices that autocompletion offered.
        followups: messages after the first answer.
    """

    kind: int
    user: worlds.User
    channel: worlds.Channel
    data: dict[str, Any]
    message: worlds.Message | None = None
    is_user_install: bool = False
    user_limit: int = 0
    id: int = dataclasses.field(default_factory=worlds.snowflake)
    token: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    created: float = dataclasses.field(default_factory=time.monotonic)
    answer: int = 0
    original: worlds.Message | None = None
    modal: dict[str, Any] | None = None
    choices: list[dict[str, Any]] | None = None
    followups: list[worlds.Message] = dataclasses.field(default_factory=list)

    @property
    def file_limit(self) -> int:
        """The largest file of an answer: the guild's limit, or the person's if that is higher."""
        guild = self.channel.guild
        return max(guild.file_limit if guild else 10 * worlds.MIB, self.user_limit)

    @property
    def messages(self) -> list[worlds.Message]:
        """All messages that answered, in order."""
        messages = [self.original] if self.original and self.original is not self.message else []
        return messages + self.followups

    @property
    def text(self) -> str:
        """The text of all answers."""
        return "\n".join(message.content for message in self.messages)

    def payload(self, bot: worlds.User) -> dict[str, Any]:
        guild = self.channel.guild
        payload: dict[str, Any] = {
            "id": str(self.id),
            "application_id": str(bot.id),
            "type": self.kind,
            "token": self.token,
            "version": 1,
            "channel_id": str(self.channel.id),
            "channel": self.channel.payload() | {"permissions": "0"},
            "data": self.data,
            "locale": "en-US",
            "app_permissions": str(worlds.DEFAULT_PERMISSIONS),
            "entitlements": [],
            "attachment_size_limit": self.file_limit,
        }
        if self.is_user_install:
            payload["authorizing_integration_owners"] = {"1": str(self.user.id)}
        else:
            payload["authorizing_integration_owners"] = {"0": str(guild.id) if guild else "0"}
        if guild is not None:
            permissions = guild.permissions(self.user, self.channel)
            payload["guild_id"] = str(guild.id)
            payload["guild"] = {"id": str(guild.id), "locale": "en-US", "features": []}
            payload["member"] = guild.member_payload(self.user) | {"permissions": str(permissions)}
            payload["context"] = 0
        else:
            payload["user"] = self.user.payload
            payload["context"] = 1 if bot in self.channel.recipients else 2
        if self.message is not None:
            payload["message"] = self.message.payload()
        return payload


class Register:
    """Interactions by token, and the rules of answering them.

    Attributes:
        first_seconds: how long the first answer may take.
        token_seconds: how long the token lives.
        faults: sentences about answers that came too late, or twice.
    """

    def __init__(self) -> None:
        self.first_seconds = 3.0
        self.token_seconds = 15 * 60.0
        self.faults: list[str] = []
        self._by_token: dict[str, Interaction] = {}

    def add(self, interaction: Interaction) -> None:
        self._by_token[interaction.token] = interaction

    def take_first_answer(self, number: int, token: str, kind: int) -> Interaction:
        """Record the first answer; returns the interaction, or refuses."""
        interaction = self._by_token.get(token)
        if interaction is None or interaction.id != number:
            raise rules.RefusedError(404, 10062, "Unknown interaction")
        if interaction.answer:
            self.faults.append("an interaction was answered twice")
            raise rules.RefusedError(400, 40060, "Interaction has already been acknowledged.")
        elapsed = time.monotonic() - interaction.created
        if elapsed > self.first_seconds:
            self.faults.append(f"an interaction was answered after {elapsed:.1f} s")
            raise rules.RefusedError(404, 10062, "Unknown interaction")
        if kind not in _ANSWERS[interaction.kind]:
            raise rules.RefusedError(400, 50035, f"answer {kind} to {interaction.kind}")
        interaction.answer = kind
        return interaction

    def take_followup(self, token: str) -> Interaction:
        """Return the interaction of a further answer, or refuse."""
        interaction = self._by_token.get(token)
        if interaction is None or not interaction.answer:
            raise rules.RefusedError(404, 10015, "Unknown Webhook")
        if time.monotonic() - interaction.created > self.token_seconds:
            raise rules.RefusedError(401, 50027, "Invalid Webhook Token")
        return interaction
