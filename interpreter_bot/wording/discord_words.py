"""Discord: its answers, its choices, and its refusals."""

from __future__ import annotations

from typing import Final

COPY_TITLE: Final = "Copy of a conversation"
INPUT_TITLE: Final = "What the code asked for"
NO_CONTENT: Final = (
    "🔹 In channels I can read only messages that mention me or reply to me, commands, and what "
    "you choose from Apps: Discord does not grant me the message-content intent."
)

NO_CONTENT_INTENT: Final = (
    "Discord does not grant the message-content intent. In channels the bot reads only messages "
    "that mention it or reply to it; messages in its threads need a mention. To change that, "
    "switch the intent on in the developer portal."
)
OPEN_TO_ALL: Final = (
    "Anyone on Discord can use this bot. To restrict it, set discord.guilds, channels, roles or "
    "people, and switch Public Bot off in the developer portal."
)
CLOSE_REASONS: Final = {
    4004: "Discord does not accept the token.",
    4010: "Discord does not accept the shards.",
    4011: "Discord requires sharding for this many servers: set discord.sharding.",
    4013: "Discord does not know the intents.",
}
"""Discord's codes for why it closes a connection."""
CLOSED_AT_ONCE: Final = "Discord closed the connection at once."
CONNECTION_ENDED: Final = "The connection to Discord has ended."
NO_ANSWER: Final = "Discord did not answer in time."
UNREACHABLE: Final = "Discord cannot be reached."
MESSAGE_REFUSED: Final = "Discord rejected the message."
TEST_MESSAGE: Final = (
    "Hello! My token works. Once I am started, write to me here, or mention me on a server."
)


def connected(name: str, *notes: str) -> str:
    return " ".join([f"connected as {name}.", *notes])


def closed_with_code(code: int) -> str:
    return f"Discord closed the connection ({code})."


def rejected(status: int, code: int) -> str:
    return f"Discord rejected the bot (status {status}, code {code})."


def cannot_write_to(name: str) -> str:
    return (
        f"Discord does not let the bot write to {name}. Add the bot to a server that {name} is on, "
        "and allow direct messages from members of that server."
    )


def not_allowed_to_write(channel_id: int) -> str:
    return (
        f"I cannot answer in <#{channel_id}>: I am not allowed to write there. Ask an admin to let "
        "me send messages, or ask me here."
    )
