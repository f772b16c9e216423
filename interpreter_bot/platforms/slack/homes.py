"""The home tab: what a person's sessions are, and for admins everybody's."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import (
    admitting,
    blocks,
    failures,
    governing,
    markdown,
    notifying,
    opinions,
    sending,
    turning,
    views,
    workspaces,
)
from interpreter_bot.sessions import requests

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_MOST: Final = 20
_KILLED: Final = "An admin ended this session: its variables are gone, its files are kept."
_DELETED: Final = "An admin deleted this session: its variables, files and history are gone."
PROMPTS: Final = (
    ("Look at a file", "Here is a file. What is in it, and what is worth knowing about it?"),
    ("Draw a chart", "Draw a chart of the data I send next."),
    ("Calculate", "How does 10,000 grow in 20 years at 3 %, 5 % and 7 %? Draw it."),
    ("What can you do?", "help"),
)


class Homes:
    """Shows home tabs and does what is pressed there."""

    def __init__(
        self,
        held: conversations.Conversations,
        sender: sending.Sender,
        door: admitting.Doorkeeper,
        thought: opinions.Opinions,
        notify: notifying.Notify,
        slack: settings.Slack,
    ) -> None:
        self._options = slack
        self._opinions = thought
        self._notify = notify
        self._conversations = held
        self._sender = sender
        self._door = door

    async def greet(self, workspace: workspaces.Workspace, user: str, channel: str) -> None:
        """Suggest what to say, where the person looks at the direct messages.

        Raises:
            SlackError: Slack does not take it.
        """
        await self._sender.call(
            workspace,
            "assistant.threads.setSuggestedPrompts",
            channel_id=channel,
            title="What would you like to know?",
            prompts=[{"title": title, "message": message} for title, message in PROMPTS],
        )

    async def show(self, workspace: workspaces.Workspace, user: str, *, person: str = "") -> None:
        """Show somebody their home tab.

        Args:
            person: whose use an admin wants to see.

        Raises:
            SlackError: Slack does not take it.
        """
        try:
            profile = await self._door.admit(workspace, user, "")
        except admitting.NotAllowedError as error:
            refused = [blocks.section(markdown.escaped(str(error)))]
            await self._publish(workspace, user, {"type": "home", "blocks": refused})
            return
        held = self._conversations
        own = await held.recent("slack", workspace.team, person=user, most=_MOST)
        nowhere = values.SessionKey("slack", workspace.team)
        usage = await held.usage(nowhere, requests.Person(profile.user, profile.name))
        more: Sequence[blocks.Block] = ()
        if profile.is_admin:
            more = governing.shown(await self._governed(workspace, person))
        shown = views.Home(
            own=own, models=held.models, usage=usage, notice=held.model_notice, more=more
        )
        await self._publish(workspace, user, views.home(shown))

    async def _governed(self, workspace: workspaces.Workspace, person: str) -> governing.Governed:
        held = self._conversations
        name, usage = "", None
        if person:
            name = (await self._door.profile(workspace, person)).name
            nowhere = values.SessionKey("slack", workspace.team)
            usage = await held.usage(nowhere, requests.Person(person, name))
        return governing.Governed(
            everybody=await held.recent("slack", workspace.team, most=_MOST),
            holds=await self._door.lists(workspace),
            approval=await held.approval(
                values.Scope("slack", workspace.team), self._options.approval
            ),
            opinions=await self._opinions.counted(workspace.team),
            person=person,
            name=name,
            usage=usage,
        )

    async def _publish(self, workspace: workspaces.Workspace, user: str, view: views.View) -> None:
        await self._sender.call(workspace, "views.publish", user_id=user, view=view)

    async def press(
        self, workspace: workspaces.Workspace, user: str, action: str, value: str
    ) -> None:
        """Do what somebody pressed in their home tab, if it is theirs to do.

        Raises:
            NotAllowedError: it is not.
            BotError: it cannot be done.
        """
        profile = await self._door.admit(workspace, user, "")
        if action == governing.PERSON:
            # Whoever is no admin sees no more than before.
            await self.show(workspace, user, person=value)
            return
        if action == views.HOME_MODEL:
            value, title = views.model_chosen(value, self._conversations.models)
            key = await self._checked(workspace, profile, value)
            await self._conversations.choose_model(key, title)
        elif action != views.HOME_REFRESH:
            key = await self._checked(workspace, profile, value)
            await self._do(action, key, profile)
        await self.show(workspace, user)

    async def _do(self, action: str, key: values.SessionKey, profile: admitting.Profile) -> None:
        if action == views.HOME_STOP:
            await self._conversations.stop(key)
        elif action == views.HOME_RESET:
            await self._conversations.reset(key)
        elif action == governing.KILL and profile.is_admin:
            await self._conversations.reset(key)
            await self._tell(key, _KILLED)
        elif action == governing.DELETE and profile.is_admin:
            await self._conversations.delete(key)
            await self._tell(key, _DELETED)

    async def _tell(self, key: values.SessionKey, sentence: str) -> None:
        try:
            await self._notify(key, sentence)
        except failures.SlackError as error:
            _log.info("people could not be told of the end of their session", exc_info=error)

    async def _checked(
        self, workspace: workspaces.Workspace, profile: admitting.Profile, value: str
    ) -> values.SessionKey:
        """Read a conversation that somebody may change.

        Raises:
            NotAllowedError: it is none, or none of theirs.
        """
        key = turning.key_of(value)
        if key is None or key.workspace != workspace.team:
            raise admitting.NotAllowedError("There is no such session.")
        if profile.is_admin:
            return key
        own = await self._conversations.recent(
            "slack", workspace.team, person=profile.user, most=_MOST
        )
        if key not in {overview.key for overview in own}:
            raise admitting.NotAllowedError("That session is not yours.")
        return key

    async def form(self, workspace: workspaces.Workspace, trigger: str) -> None:
        """Let an admin choose; whether it is one is checked when that is sent.

        Raises:
            SlackError: Slack does not take it.
        """
        scope = values.Scope("slack", workspace.team)
        view = governing.form(await self._conversations.choices(scope))
        await self._sender.call(workspace, "views.open", trigger_id=trigger, view=view)

    async def choose(self, workspace: workspaces.Workspace, user: str, view: views.View) -> None:
        """Take what an admin chose.

        Raises:
            BotError: they are none.
        """
        profile = await self._door.admit(workspace, user, "")
        if not profile.is_admin:
            raise errors.BotError("Only admins may change that.")
        scope = values.Scope("slack", workspace.team)
        for name, value in governing.chosen(view).items():
            await self._conversations.choose(scope, name, value)
        _log.info("%s of %s changed who may, and how", user, workspace.team)
        await self.show(workspace, user)
