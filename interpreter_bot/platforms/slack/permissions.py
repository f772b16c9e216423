"""Permissions: who may use the bot, by settings and by the choices of workspaces and channels."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import cachetools

from interpreter_bot import settings, values
from interpreter_bot.platforms import preferences
from interpreter_bot.platforms.chat import policies
from interpreter_bot.platforms.slack import api_errors, installations, web_api
from interpreter_bot.sessions import quotas, requests
from interpreter_bot.wording import access_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service


# Names of the choices of a workspace.
PEOPLE: Final = "allowed_people"
GROUPS: Final = "allowed_groups"
CHANNELS: Final = "allowed_channels"
APPROVAL: Final = preferences.APPROVAL
FOLLOWING: Final = preferences.FOLLOW_THREADS
TOKENS: Final = quotas.TOKENS
MONEY: Final = quotas.MONEY

_log = logging.getLogger(__name__)

_GROUP_PREFIX: Final = "S"
_CACHE_SECONDS: Final = 600.0
_MAX_CACHED_ENTRIES: Final = 10_000
_MEMBERS_PER_PAGE: Final = 1000


def rules(choices: Mapping[str, Any], config: settings.Slack) -> policies.Rules:
    """Return the rules in effect in a workspace; invalid choices of its admins are ignored."""
    groups = tuple(id for id in config.allowed_people if id.startswith(_GROUP_PREFIX))
    people = tuple(id for id in config.allowed_people if not id.startswith(_GROUP_PREFIX))
    return policies.Rules(
        workspaces=config.allowed_workspaces,
        people=_parse_ids(choices.get(PEOPLE)) or people,
        groups=_parse_ids(choices.get(GROUPS)) or groups,
        channels=_parse_ids(choices.get(CHANNELS)) or config.allowed_channels,
        allows_guests=config.allows_guests,
        allows_outsiders=config.allows_strangers,
    )


def _parse_ids(ids: object) -> tuple[str, ...]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        return ()
    return tuple(map(str, ids))


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A person as Slack knows them; `zone` is their time zone."""

    user: str
    name: str
    is_guest: bool
    is_outsider: bool
    is_bot: bool
    is_admin: bool
    zone: str = ""

    @property
    def person(self) -> requests.Person:
        """The person of requests."""
        return requests.Person(self.user, self.name, self.zone)


class Permissions:
    """Checks permissions.

    Attributes:
        settings: the defaults of the settings that people can choose.
    """

    def __init__(
        self,
        api: web_api.WebApi,
        config: settings.Slack,
        service: session_service.SessionService,
    ) -> None:
        self._api = api
        self._config = config
        self._service = service
        self.settings: Mapping[str, object] = {
            preferences.APPROVAL: "never",
            preferences.MODEL: "",
            preferences.FOLLOW_THREADS: True,
            preferences.SHOW_CODE: False,
        }
        self._profiles = cachetools.TTLCache[tuple[str, str], Profile](
            _MAX_CACHED_ENTRIES, _CACHE_SECONDS
        )
        self._group_members = cachetools.TTLCache[tuple[str, str], frozenset[str]](
            _MAX_CACHED_ENTRIES, _CACHE_SECONDS
        )

    async def require(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        *,
        user_team: str = "",
    ) -> Profile:
        """Check that a person may use the bot; return their profile.

        Raises:
            policies.NotAllowedError: they may not; the sentence says why.
        """
        rules_here = await self.rules(workspace)
        requester = policies.Requester(
            person=user,
            workspace=workspace.team,
            channels=(channel,),
            is_direct=channel.startswith("D") or not channel,
        )
        if refusal := policies.refusal_of_place(requester, rules_here):
            raise refusal
        profile = await self.profile(workspace, user, user_team)
        requester = dataclasses.replace(
            requester,
            is_admin=profile.is_admin,
            is_bot=profile.is_bot,
            is_guest=profile.is_guest,
            is_outsider=profile.is_outsider,
        )
        error = policies.refusal(requester, rules_here)
        if error and rules_here.groups:
            groups = await self._groups_of_person(workspace, user, rules_here.groups)
            error = policies.refusal(dataclasses.replace(requester, groups=groups), rules_here)
        if error:
            raise error
        return profile

    async def find_owner_refusal(
        self, workspace: installations.InstalledWorkspace, key: values.SessionKey, user: str
    ) -> str:
        """Return why the owner of a schedule may no longer use the bot in a channel; empty if they
        may.

        Raises:
            SlackError: Slack does not say.
        """
        try:
            await self.require(workspace, user, key.channel)
        except policies.NotAllowedError as error:
            if isinstance(error.__cause__, api_errors.LostError):
                raise error.__cause__ from None
            return str(error)
        is_there = await self._may_be_in(workspace, key.channel, user)
        return "" if is_there else access_words.OWNER_LEFT_CHANNEL

    async def _may_be_in(
        self, workspace: installations.InstalledWorkspace, channel: str, user: str
    ) -> bool:
        """Return whether a person is in a channel; True if the app has no scope to read that.

        Raises:
            SlackError: Slack does not say.
        """
        if channel.startswith("D"):
            return True
        cursor: str | None = None
        while True:
            try:
                page = await self._api.call(
                    workspace,
                    "conversations.members",
                    channel=channel,
                    limit=_MEMBERS_PER_PAGE,
                    cursor=cursor,
                )
            except api_errors.GoneError:
                raise
            except api_errors.RefusedError as error:
                _log.info("the members of %s cannot be read: %s", channel, error)
                return True
            if user in page.get("members", ()):
                return True
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                return False

    async def _groups_of_person(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        groups: Collection[policies.Id],
    ) -> Sequence[str]:
        """Return those of `groups` that a person is a member of."""
        return [
            group
            for group in map(str, groups)
            if user in await self._members_of_group(workspace, group)
        ]

    async def rules(self, workspace: installations.InstalledWorkspace) -> policies.Rules:
        """Return who may use the bot in a workspace, by its admins or else by the settings."""
        scope = values.Scope("slack", workspace.team)
        return rules(await self._service.queries.choices(scope), self._config)

    async def preferences(self, scope: values.Scope) -> preferences.Preferences:
        """Return the preferences in effect in a scope."""
        return preferences.find_effective(await self._service.queries.choices(scope), self.settings)

    async def _members_of_group(
        self, workspace: installations.InstalledWorkspace, group: str
    ) -> frozenset[str]:
        key = (workspace.team, group)
        members = self._group_members.get(key)
        if members is None:
            try:
                answer = await self._api.call(workspace, "usergroups.users.list", usergroup=group)
            except api_errors.SlackError as error:
                # Nobody counts as a member then.
                _log.warning("the members of the group %s are unknown", group, exc_info=error)
                return frozenset()
            members = frozenset(answer.get("users", ()))
            self._group_members[key] = members
        return members

    async def profile(
        self, workspace: installations.InstalledWorkspace, user: str, user_team: str = ""
    ) -> Profile:
        """Return the profile of a person.

        Raises:
            policies.NotAllowedError: Slack does not return it.
        """
        key = (workspace.team, user)
        profile = self._profiles.get(key)
        if profile is None:
            try:
                answer = await self._api.call(workspace, "users.info", user=user)
            except api_errors.SlackError as error:
                _log.warning("%s could not be looked up", user, exc_info=error)
                raise policies.NotAllowedError(access_words.UNKNOWN_PERSON) from error
            profile = self._parse_profile(workspace, user, answer.get("user", {}))
            self._profiles[key] = profile
        if user_team and user_team not in (workspace.team, workspace.enterprise):
            return dataclasses.replace(profile, is_outsider=True, is_admin=False)
        return profile

    def _parse_profile(
        self, workspace: installations.InstalledWorkspace, user: str, user_info: dict[str, Any]
    ) -> Profile:
        profile = user_info.get("profile") or {}
        name = (
            profile.get("display_name") or profile.get("real_name") or user_info.get("name") or user
        )
        team = str(user_info.get("team_id") or "")
        enterprise = (user_info.get("enterprise_user") or {}).get("enterprise_id")
        is_member = team == workspace.team or bool(
            workspace.enterprise and enterprise == workspace.enterprise
        )
        is_outsider = bool(user_info.get("is_stranger")) or not is_member
        is_workspace_admin = bool(user_info.get("is_admin") or user_info.get("is_owner"))
        is_admin = user in self._config.admins or (is_workspace_admin and not is_outsider)
        is_guest = bool(user_info.get("is_restricted") or user_info.get("is_ultra_restricted"))
        is_bot = bool(user_info.get("is_bot") or user_info.get("deleted"))
        zone = str(user_info.get("tz") or "")
        return Profile(user, str(name), is_guest, is_outsider, is_bot, is_admin, zone)
