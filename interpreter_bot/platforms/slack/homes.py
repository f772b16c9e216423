"""The home tab: what a person's sessions are, and for admins everybody's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.slack import (
    admitting,
    blocks,
    markdown,
    sending,
    turning,
    views,
    workspaces,
)
from interpreter_bot.sessions import requests

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_MOST: Final = 20
_USER: Final = re.compile(r"\b[UW][A-Z0-9]{1,30}\b")
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
    ) -> None:
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

    async def show(self, workspace: workspaces.Workspace, user: str) -> None:
        """Show somebody their home tab.

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
        everybody, allowed = None, None
        if profile.is_admin:
            everybody = await held.recent("slack", workspace.team, most=_MOST)
            allowed = await self._door.chosen(workspace)
        shown = views.Home(
            own=own,
            models=held.models,
            usage=usage,
            notice=held.model_notice,
            everybody=everybody,
            allowed=allowed,
        )
        await self._publish(workspace, user, views.home(shown))

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
        elif action == views.HOME_DELETE and profile.is_admin:
            await self._conversations.delete(key)

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

    async def allowed_form(self, workspace: workspaces.Workspace, trigger: str) -> None:
        """Let an admin write who may; whether it is one is checked when it is sent.

        Raises:
            SlackError: Slack does not take it.
        """
        listed = " ".join(await self._door.chosen(workspace))
        view = views.form(
            views.ALLOWED_FORM,
            "Who may",
            "Ids of people (U…), divided by spaces; empty: nobody besides the settings",
            submit="Save",
            facts="",
            initial=listed,
            is_optional=True,
        )
        await self._sender.call(workspace, "views.open", trigger_id=trigger, view=view)

    async def allow(self, workspace: workspaces.Workspace, user: str, text: str) -> None:
        """Take what an admin wrote.

        Raises:
            BotError: they are none.
        """
        profile = await self._door.admit(workspace, user, "")
        if not profile.is_admin:
            raise errors.BotError("Only admins may change that.")
        chosen: list[str] = _USER.findall(text)
        scope = values.Scope("slack", workspace.team)
        value: Any = chosen or None
        await self._conversations.choose(scope, admitting.ALLOWED_CHOICE, value)
        await self.show(workspace, user)
