"""Making a request of a message: its words or its code, its files, what was said before."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import (
    commands,
    file_downloads,
    installations,
    message_parsing,
    permissions,
    thread_history,
)
from interpreter_bot.sessions import requests

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_MOST_FILES: Final = 20
_LOOK: Final = "Look at what I sent and tell me what it is."


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A message that is to be answered."""

    message: message_parsing.Message
    thread: thread_history.Thread
    key: values.SessionKey
    person: requests.Person


def is_raw(message: message_parsing.Message, text: str) -> bool:
    """Say whether a message is code to be run as it is: `py …`, or a snippet without words."""
    command = commands.parse(text) if not message.files else None
    if command is not None and command.name == "py":
        return True
    return not text and len(message.files) == 1 and message_parsing.is_snippet(message.files[0])


async def request(
    service: conversations.Conversations,
    door: permissions.Permissions,
    fetched: file_downloads.FileDownloads,
    workspace: installations.InstalledWorkspace,
    asked: ParsedRequest,
    *,
    config: settings.Slack,
) -> requests.Request:
    """Make the request.

    Raises:
        BotError: there is nothing to be done, or a snippet cannot be had.
    """
    message = asked.message
    text = message_parsing.words(message.text, workspace.bot_user)
    about: dict[str, Any] = {"key": asked.key, "person": asked.person, "id": message.id}
    if is_raw(message, text):
        if message.files:
            code = await fetched.text(workspace, message.files[0])
        else:
            code = commands.code_of_mention(message.text, workspace.bot_user)
        return requests.Request(**about, text=code, is_code=True)
    files = list(message.files[:_MOST_FILES])
    names = await _names(door, workspace, asked.thread)
    shared = [one for sent in asked.thread.with_files if sent.user in names for one in sent.files]
    if shared:
        present = frozenset(info.name for info in await service.files(asked.key))
        files += thread_history.files_asked_for(shared, text, present)[:_MOST_FILES]
    if not text and not files:
        raise errors.BotError(commands.HELP)
    before = [earlier for earlier in asked.thread.before if earlier.user in names]
    return requests.Request(
        **about,
        text=text or _LOOK,
        attachments=fetched.attachments(workspace, files),
        context=thread_history.context(before, names),
        approval=config.approval,
    )


async def _names(
    door: permissions.Permissions,
    workspace: installations.InstalledWorkspace,
    thread: thread_history.Thread,
) -> dict[str, str]:
    """Name who spoke in a thread before.

    Whoever may not use the bot there is left out: their words and files are not to reach a model
    by way of somebody who may.
    """
    names = {}
    for earlier in {one.user: one for one in (*thread.before, *thread.with_files)}.values():
        try:
            profile = await door.require(
                workspace, earlier.user, earlier.channel, user_team=earlier.user_team
            )
        except permissions.NotAllowedError:
            continue
        names[earlier.user] = profile.name
    return names


async def chosen(
    service: conversations.Conversations, key: values.SessionKey, config: settings.Slack
) -> permissions.Preferences:
    """Say what holds in the channel of a conversation."""
    scope = values.Scope("slack", key.workspace, key.channel)
    return permissions.effective(await service.choices(scope), config)
