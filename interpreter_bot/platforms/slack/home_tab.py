"""The home tab: a person's sessions and usage, and for admins the whole workspace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.chat import policies
from interpreter_bot.platforms.slack import (
    admin_views,
    api_errors,
    blocks,
    command_views,
    handler_dependencies,
    home_and_modal_views,
    installations,
    markdown,
    message_posting,
    permissions,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import access_words, session_words, slack_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service


_TALLY_NAME: Final = "feedback"
_RATINGS: Final = ("up", "down")

_log = logging.getLogger(__name__)

_MAX_SESSIONS: Final = 20


class Feedback:
    """Ratings of answers, stored as choices: of the person for the turn, and of the workspace's
    tally.

    Two ratings at the same moment may be counted as one in the tally; the ratings themselves are
    each stored under a name of their own.
    """

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service
        self._lock = asyncio.Lock()

    async def store_rating(self, team: str, user: str, turn: str, rating: str) -> None:
        """Store a person's rating of a turn, "up" or "down", in place of an earlier one."""
        service = self._service
        person_scope = values.Scope("slack", team, person=user)
        choice_name = f"{_TALLY_NAME}:{turn}"
        async with self._lock:
            former = (await service.queries.choices(person_scope)).get(choice_name)
            if rating not in _RATINGS or former == rating:
                return
            tally = await self._tally(team)
            tally[rating] += 1
            if former in tally:
                tally[str(former)] -= 1
            await service.places.choose(person_scope, choice_name, rating)
            await service.places.choose(values.Scope("slack", team), _TALLY_NAME, tally)

    async def count_ratings(self, team: str) -> tuple[int, int]:
        """Return how many answers were rated good, and how many bad."""
        tally = await self._tally(team)
        return tally["up"], tally["down"]

    async def _tally(self, team: str) -> dict[str, int]:
        stored_tally: Any = (await self._service.queries.choices(values.Scope("slack", team))).get(
            _TALLY_NAME
        )
        counts = stored_tally if isinstance(stored_tally, Mapping) else {}
        return {rating: max(int(counts.get(rating, 0)), 0) for rating in _RATINGS}


class HomeTab:
    """Shows home tabs and handles their buttons; what a person may not do raises a `BotError`."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        feedback: Feedback,
        notify: message_posting.Notify,
    ) -> None:
        self._config = shared.config
        self._service = shared.service
        self._api = shared.api
        self._permissions = shared.permissions
        self._feedback = feedback
        self._notify = notify

    async def suggest_prompts(
        self, workspace: installations.InstalledWorkspace, channel: str
    ) -> None:
        """Suggest prompts in the direct messages of a person."""
        await self._api.call(
            workspace,
            "assistant.threads.setSuggestedPrompts",
            channel_id=channel,
            title=slack_words.GREETING,
            prompts=[
                {"title": title, "message": message}
                for title, message in slack_words.SUGGESTED_PROMPTS
            ],
        )

    async def show(
        self, workspace: installations.InstalledWorkspace, user: str, *, person: str = ""
    ) -> None:
        """Show a person their home tab; to an admin also the usage of `person`."""
        try:
            profile = await self._permissions.require(workspace, user, "")
        except policies.NotAllowedError as error:
            refusal_blocks = [blocks.section(markdown.escape_mrkdwn(str(error)))]
            await self._publish(workspace, user, {"type": "home", "blocks": refusal_blocks})
            return
        service = self._service
        sessions = await service.recent("slack", workspace.team, person=user, limit=_MAX_SESSIONS)
        workspace_key = values.SessionKey("slack", workspace.team)
        viewer = profile.person
        usage = await service.queries.usage(workspace_key, viewer)
        admin_section: Sequence[blocks.Block] = ()
        if profile.is_admin:
            admin_section = admin_views.admin_blocks(await self._admin_section(workspace, person))
        content = home_and_modal_views.Home(
            sessions=sessions,
            models=service.queries.models,
            help=await command_views.help_text(service, workspace_key, viewer),
            usage=usage,
            notice=service.model_notice,
            admin_blocks=admin_section,
        )
        await self._publish(workspace, user, home_and_modal_views.make_home_view(content))

    async def _admin_section(
        self, workspace: installations.InstalledWorkspace, person: str
    ) -> admin_views.AdminSection:
        service = self._service
        person_name, usage = "", None
        scope = values.Scope("slack", workspace.team)
        if person:
            person_name = (await self._permissions.profile(workspace, person)).name
            workspace_key = values.SessionKey("slack", workspace.team)
            usage = await service.queries.usage(workspace_key, requests.Person(person, person_name))
        return admin_views.AdminSection(
            sessions=await service.recent("slack", workspace.team, limit=_MAX_SESSIONS),
            rules=await self._permissions.rules(workspace),
            follows_threads=(await self._permissions.preferences(scope)).follow_threads,
            approval=await service.queries.approval(scope),
            feedback=await self._feedback.count_ratings(workspace.team),
            person=person,
            person_name=person_name,
            usage=usage,
        )

    async def _publish(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        view: home_and_modal_views.View,
    ) -> None:
        await self._api.call(workspace, "views.publish", user_id=user, view=view)

    async def press(
        self, workspace: installations.InstalledWorkspace, user: str, action: str, value: str
    ) -> None:
        """Handle a button of a person's home tab, if they may use it."""
        profile = await self._permissions.require(workspace, user, "")
        if action == admin_views.CHOOSE_PERSON:
            # `show` ignores this for people who are no admins.
            await self.show(workspace, user, person=value)
            return
        if action == home_and_modal_views.HOME_MODEL:
            value, title = home_and_modal_views.parse_model_choice(
                value, self._service.queries.models
            )
            key = await self._require_session(workspace, profile, value)
            await self._service.choose_model(key, title)
        elif action != home_and_modal_views.HOME_REFRESH:
            key = await self._require_session(workspace, profile, value)
            await self._act_on_session(action, key, profile)
        await self.show(workspace, user)

    async def _act_on_session(
        self, action: str, key: values.SessionKey, profile: permissions.Profile
    ) -> None:
        if action == home_and_modal_views.HOME_STOP:
            await self._service.stop(key)
        elif action == home_and_modal_views.HOME_RESET:
            await self._service.reset(key)
        elif action == admin_views.KILL_SESSION and profile.is_admin:
            await self._service.reset(key)
            await self._notify_people(key, session_words.ENDED_BY_ADMIN)
        elif action == admin_views.DELETE_SESSION and profile.is_admin:
            await self._service.delete(key)
            await self._notify_people(key, session_words.DELETED_BY_ADMIN)

    async def _notify_people(self, key: values.SessionKey, sentence: str) -> None:
        try:
            await self._notify(key, sentence)
        except api_errors.SlackError as error:
            _log.info("people could not be notified of the end of their session", exc_info=error)

    async def _require_session(
        self, workspace: installations.InstalledWorkspace, profile: permissions.Profile, value: str
    ) -> values.SessionKey:
        """Parse the key of a session that the person may change."""
        key, _ = blocks.parse_button_value(value)
        if key is None or key.workspace != workspace.team:
            raise policies.NotAllowedError(session_words.NO_SUCH_SESSION)
        if profile.is_admin:
            return key
        own_sessions = await self._service.recent(
            "slack", workspace.team, person=profile.user, limit=_MAX_SESSIONS
        )
        if key not in {overview.record.key for overview in own_sessions}:
            raise policies.NotAllowedError(session_words.NOT_YOUR_SESSION)
        return key

    async def open_form(self, workspace: installations.InstalledWorkspace, trigger_id: str) -> None:
        """Open the admins' form; whether the person is an admin is checked on submission."""
        scope = values.Scope("slack", workspace.team)
        view = admin_views.access_form(await self._service.queries.choices(scope))
        await self._api.call(workspace, "views.open", trigger_id=trigger_id, view=view)

    async def store_choices(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        view: home_and_modal_views.View,
    ) -> None:
        """Store what an admin chose."""
        profile = await self._permissions.require(workspace, user, "")
        if not profile.is_admin:
            raise errors.BotError(access_words.ADMINS_ONLY)
        scope = values.Scope("slack", workspace.team)
        former = await self._service.queries.choices(scope)
        for name, value in admin_views.submitted_choices(view).items():
            if value != former.get(name):
                await self._service.places.choose(scope, name, value, author=profile.name)
        _log.info("%s of %s changed who may, and how", user, workspace.team)
        await self.show(workspace, user)
