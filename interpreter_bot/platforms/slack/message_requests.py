"""Make requests of messages: text or code, files, and the messages before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.chat import policies
from interpreter_bot.platforms.slack import (
    command_views,
    handler_dependencies,
    installations,
    message_parsing,
    permissions,
    thread_history,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import command_words

_MAX_FILES: Final = 20


def session_key(
    workspace: installations.InstalledWorkspace,
    message: message_parsing.Message,
    *,
    uses_channel_kernel: bool,
) -> values.SessionKey:
    """Return the key of a message's session: its thread's, or its channel's."""
    root = "" if uses_channel_kernel else message.root
    return values.SessionKey("slack", workspace.team, message.channel, root)


async def build(
    dependencies: handler_dependencies.HandlerDependencies,
    workspace: installations.InstalledWorkspace,
    incoming: message_parsing.IncomingMessage,
    thread: thread_history.Thread,
    person: requests.Person,
) -> requests.Request:
    """Make the request.

    Raises:
        BotError: there is nothing to do, or a snippet cannot be fetched.
    """
    message, text = incoming.message, incoming.text
    fields: dict[str, Any] = {
        "key": session_key(workspace, message, uses_channel_kernel=thread.uses_channel_kernel),
        "person": person,
        "id": message.id,
    }
    if incoming.is_code:
        code = incoming.code
        if message.files:
            code = await dependencies.downloads.text(workspace, message.files[0])
        return requests.Request(**fields, text=code, is_code=True)
    files = list(message.files[:_MAX_FILES])
    limit = dependencies.config.context_messages
    begins_thread_in_channel = not message.thread and not message.is_direct
    channel_messages = (
        await dependencies.threads.read_channel(workspace, message)
        if begins_thread_in_channel and limit
        else ()
    )
    names = await _names(dependencies.permissions, workspace, thread, channel_messages)
    earlier_files = [
        file for sent in thread.with_files if sent.bot or sent.user in names for file in sent.files
    ]
    if earlier_files:
        present_names = frozenset(
            info.name for info in await dependencies.service.queries.files(fields["key"])
        )
        files += thread_history.requested_files(earlier_files, text, present_names)[:_MAX_FILES]
    if not text and not files:
        raise errors.BotError(
            await command_views.help_text(dependencies.service, fields["key"], fields["person"])
        )
    earlier_messages = [
        earlier
        for earlier in (*channel_messages, *thread.before)
        if earlier.bot or earlier.user in names
    ]
    return requests.Request(
        **fields,
        text=text or command_words.DESCRIBE_UPLOAD,
        attachments=dependencies.downloads.attachments(workspace, files),
        recent=thread_history.recent(earlier_messages, names, limit=limit),
        approval=dependencies.config.approval,
        may_steer=True,
    )


async def _names(
    permitted: permissions.Permissions,
    workspace: installations.InstalledWorkspace,
    thread: thread_history.Thread,
    channel_messages: Sequence[message_parsing.Message],
) -> dict[str, str]:
    """Return the names of the people who wrote earlier messages, by their ids.

    People who may not use the bot there are left out, because their messages and files must not
    reach a model.
    """
    names = {}
    messages = (*thread.before, *thread.with_files, *channel_messages)
    for earlier in {message.user: message for message in messages if not message.bot}.values():
        try:
            profile = await permitted.require(
                workspace, earlier.user, earlier.channel, user_team=earlier.user_team
            )
        except policies.NotAllowedError:
            continue
        names[earlier.user] = profile.name
    return names
