"""Where an answer goes."""

from __future__ import annotations

import dataclasses

from interpreter_bot.platforms.slack import incoming, workspaces


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A spot in a channel.

    Attributes:
        thread: timestamp of the thread's root; empty for the channel itself.
        asked: timestamp of the message that is answered; empty for a command.
        user: who asked.
    """

    workspace: workspaces.Workspace
    channel: str
    thread: str
    asked: str
    user: str

    @property
    def is_direct(self) -> bool:
        """Whether nobody else reads along."""
        return self.channel.startswith("D")


def of(workspace: workspaces.Workspace, message: incoming.Message) -> Place:
    """Say where the answer to a message goes: into its thread."""
    return Place(
        workspace,
        channel=message.channel,
        thread=message.root,
        asked=message.ts,
        user=message.user,
    )
