"""Who may use the bot, and what they are called."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import cachetools

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import failures, preferences, sending, workspaces

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 600.0
_MOST_KNOWN: Final = 10_000


class NotAllowedError(errors.BotError):
    """This person may not use the bot here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """What Slack knows of somebody, as far as it matters."""

    user: str
    name: str
    team: str
    is_guest: bool
    is_stranger: bool
    is_bot: bool
    is_admin: bool


class Doorkeeper:
    """Lets people in."""

    def __init__(
        self,
        sender: sending.Sender,
        slack: settings.Slack,
        held: conversations.Conversations,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender = sender
        self._options = slack
        self._conversations = held
        self._profiles = cachetools.TTLCache[tuple[str, str], Profile](
            _MOST_KNOWN, _FRESH_SECONDS, timer=clock
        )
        self._groups = cachetools.TTLCache[tuple[str, str], frozenset[str]](
            _MOST_KNOWN, _FRESH_SECONDS, timer=clock
        )

    async def admit(
        self, workspace: workspaces.Workspace, user: str, channel: str, *, user_team: str = ""
    ) -> Profile:
        """Let somebody in, or not.

        Raises:
            NotAllowedError: they may not; the sentence says why.
        """
        slack = self._options
        if slack.allowed_workspaces and workspace.team not in slack.allowed_workspaces:
            raise NotAllowedError("I do not work in this workspace.")
        lists = await self.lists(workspace)
        is_direct = channel.startswith("D") or not channel
        if lists.channels and not is_direct and channel not in lists.channels:
            raise NotAllowedError("I do not work in this channel.")
        profile = await self.profile(workspace, user, user_team)
        if profile.is_bot:
            raise NotAllowedError("I do not talk with bots.")
        if profile.is_stranger and not slack.allows_strangers:
            raise NotAllowedError("I only work for people of this workspace.")
        if profile.is_guest and not slack.allows_guests:
            raise NotAllowedError("I do not work for guests of this workspace.")
        if not await self._is_listed(workspace, profile, lists):
            raise NotAllowedError("You are not on the list of people I work for. Ask an admin.")
        return profile

    async def _is_listed(
        self, workspace: workspaces.Workspace, profile: Profile, lists: preferences.Preferences
    ) -> bool:
        if not lists.people and not lists.groups:
            return True
        if profile.user in lists.people or profile.is_admin:
            return True
        for group in lists.groups:
            if profile.user in await self._members(workspace, group):
                return True
        return False

    async def lists(self, workspace: workspaces.Workspace) -> preferences.Preferences:
        """Say who may in a workspace: what its admins chose, else the settings."""
        scope = values.Scope("slack", workspace.team)
        return preferences.effective(await self._conversations.choices(scope), self._options)

    async def _members(self, workspace: workspaces.Workspace, group: str) -> frozenset[str]:
        key = (workspace.team, group)
        members = self._groups.get(key)
        if members is None:
            try:
                answer = await self._sender.call(
                    workspace, "usergroups.users.list", usergroup=group
                )
            except failures.SlackError as error:
                # Whoever cannot be found on a list is not on it.
                _log.warning("the members of %s are not known", group, exc_info=error)
                return frozenset()
            members = frozenset(answer.get("users", ()))
            self._groups[key] = members
        return members

    async def profile(
        self, workspace: workspaces.Workspace, user: str, user_team: str = ""
    ) -> Profile:
        """Look somebody up.

        Raises:
            NotAllowedError: Slack does not say who they are.
        """
        key = (workspace.team, user)
        known = self._profiles.get(key)
        if known is None:
            try:
                answer = await self._sender.call(workspace, "users.info", user=user)
            except failures.SlackError as error:
                _log.warning("%s could not be looked up", user, exc_info=error)
                raise NotAllowedError("Slack does not say who you are. Try again later.") from error
            known = self._read(workspace, user, answer.get("user", {}))
            self._profiles[key] = known
        if user_team and user_team not in (workspace.team, workspace.enterprise):
            return dataclasses.replace(known, is_stranger=True, is_admin=False)
        return known

    def _read(self, workspace: workspaces.Workspace, user: str, facts: dict[str, Any]) -> Profile:
        profile = facts.get("profile") or {}
        name = profile.get("display_name") or profile.get("real_name") or facts.get("name") or user
        team = str(facts.get("team_id") or "")
        enterprise = (facts.get("enterprise_user") or {}).get("enterprise_id")
        is_same = team == workspace.team or bool(
            workspace.enterprise and enterprise == workspace.enterprise
        )
        is_stranger = bool(facts.get("is_stranger")) or not is_same
        is_chief = bool(facts.get("is_admin") or facts.get("is_owner"))
        is_admin = user in self._options.admins or (is_chief and not is_stranger)
        is_guest = bool(facts.get("is_restricted") or facts.get("is_ultra_restricted"))
        is_bot = bool(facts.get("is_bot") or facts.get("deleted"))
        return Profile(user, str(name), team, is_guest, is_stranger, is_bot, is_admin)
