"""Make a request of a message: its words or its code, its files, what was said before."""

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
    shared: handler_dependencies.HandlerDependencies,
    workspace: installations.InstalledWorkspace,
    incoming: message_parsing.IncomingMessage,
    thread: thread_history.Thread,
    person: requests.Person,
) -> requests.Request:
    """Make the request.

    Raises:
        BotError: there is nothing to be done, or a snippet cannot be had.
    """
    message, text = incoming.message, incoming.text
    about: dict[str, Any] = {
        "key": session_key(workspace, message, uses_channel_kernel=thread.uses_channel_kernel),
        "person": person,
        "id": message.id,
        "edits": message.ts if message.edited else "",
    }
    if incoming.is_code:
        code = incoming.code
        if message.files:
            code = await shared.downloads.text(workspace, message.files[0])
        return requests.Request(**about, text=code, is_code=True)
    files = list(message.files[:_MAX_FILES])
    is_alone = not message.thread and not message.is_direct
    around = await shared.threads.around(workspace, message) if is_alone else ()
    names = await _names(shared.permissions, workspace, thread, around)
    sent_before = [
        file for sent in thread.with_files if sent.bot or sent.user in names for file in sent.files
    ]
    if sent_before:
        present = frozenset(info.name for info in await shared.service.queries.files(about["key"]))
        files += thread_history.files_asked_for(sent_before, text, present)[:_MAX_FILES]
    if not text and not files:
        raise errors.BotError(
            await command_views.help_text(shared.service, about["key"], about["person"])
        )
    before = [
        earlier for earlier in (*around, *thread.before) if earlier.bot or earlier.user in names
    ]
    return requests.Request(
        **about,
        text=text or command_words.DESCRIBE_UPLOAD,
        attachments=shared.downloads.attachments(workspace, files),
        recent=thread_history.recent(before, names),
        approval=shared.config.approval,
    )


async def _names(
    permitted: permissions.Permissions,
    workspace: installations.InstalledWorkspace,
    thread: thread_history.Thread,
    around: Sequence[message_parsing.Message],
) -> dict[str, str]:
    """Return the names of people who spoke before.

    People who may not use the bot there are left out: their words and files are not to reach a
    model through a person who may.
    """
    names = {}
    everything = (*thread.before, *thread.with_files, *around)
    for earlier in {one.user: one for one in everything if not one.bot}.values():
        try:
            profile = await permitted.require(
                workspace, earlier.user, earlier.channel, user_team=earlier.user_team
            )
        except policies.NotAllowedError:
            continue
        names[earlier.user] = profile.name
    return names
