"""The bolt app: every event, command, shortcut, button and modal, with its handler.

Each is acknowledged at once, and handled in a task of its own.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final, cast

from slack_bolt.async_app import AsyncApp, AsyncBoltContext
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.kwargs_injection.async_args import AsyncArgs
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from interpreter_bot.platforms.slack import (
    button_and_modal_handlers,
    command_and_button_actions,
    home_tab,
    installations,
    interaction_requests,
    message_events,
    message_parsing,
    modals,
    requests_in_flight,
)

_log = logging.getLogger(__name__)

EVENTS: Final = (
    *("agent_session_stopped", "agent_session_title_changed", "app_context_changed"),
    *("app_home_opened", "app_mention", "app_uninstalled", "message.channels", "message.groups"),
    *("message.im", "message.mpim", "tokens_revoked"),
)
"""What the manifest subscribes to."""

COMMANDS: Final = ("/py", "/interpreter")
SHORTCUTS: Final = ("run_message", "ask_message")
_ANYTHING: Final = re.compile(r".*", re.DOTALL)


class Handlers:
    """Handlers that bolt calls."""

    def __init__(
        self,
        workspaces: installations.InstalledWorkspaces,
        in_flight: requests_in_flight.RequestsInFlight,
        messages: message_events.MessageEvents,
        interaction_handlers: command_and_button_actions.CommandActions,
        asked: interaction_requests.InteractionRequests,
        home: home_tab.HomeTab,
        modal_views: modals.Modals,
        actions: button_and_modal_handlers.ButtonAndModalHandlers,
    ) -> None:
        self._workspaces = workspaces
        self._in_flight = in_flight
        self._messages = messages
        self._interactions = interaction_handlers
        self._requests = asked
        self._home = home
        self._modals = modal_views
        self._actions = actions

    def register(self, app: AsyncApp) -> None:
        """Register the handlers with an app."""
        for name in ("message", "app_mention"):
            app.event(name)(self.message)
        app.event("app_home_opened")(self.home_opened)
        app.event("agent_session_stopped")(self.stopped)
        app.event("agent_session_title_changed")(self.title_changed)
        app.event("app_context_changed")(self.context_changed)
        app.event("tokens_revoked")(self.revoked)
        app.event("app_uninstalled")(self.revoked)
        app.command("/py")(self.py)
        app.command("/interpreter")(self.interpreter)
        for name, handle in zip(SHORTCUTS, (self.run_message, self.ask_message), strict=True):
            app.shortcut(name)(handle)
        app.action(_ANYTHING)(self._actions.action)
        app.view(_ANYTHING)(self._actions.submitted)
        app.error(_acknowledge_failed)

    # Events -------------------------------------------------------------------------------

    async def message(
        self, event: dict[str, Any], body: dict[str, Any], context: AsyncBoltContext
    ) -> None:
        """Hear a message."""
        workspace = await self._workspaces.of(context)
        event_id = str(body.get("event_id", ""))
        self._in_flight.spawn(self._messages.on_event(workspace, event, event_id), "message")

    async def home_opened(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Show the home tab, or suggest prompts."""
        workspace = await self._workspaces.of(context)
        user = str(event["user"])
        if event.get("tab") == "messages":
            work = self._home.greet(workspace, user, str(event["channel"]))
        else:
            work = self._home.show(workspace, user)
        self._in_flight.spawn(work, "home")

    async def stopped(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Stop what a person stopped with Slack's own button."""
        workspace = await self._workspaces.of(context)
        channel, root = str(event["channel"]), str(event["thread_ts"])
        user = str(event.get("user", ""))
        self._in_flight.spawn(
            self._interactions.stop_thread(workspace, user, channel, root), "stop"
        )

    async def title_changed(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Take over the title that a person gave a session."""
        workspace = await self._workspaces.of(context)
        work = self._interactions.rename(
            workspace,
            str(event.get("user", "")),
            str(event.get("channel", "")),
            str(event.get("thread_ts", "")),
            str(event.get("title", "")),
        )
        self._interactions.spawn(work, "title", None)

    async def context_changed(self) -> None:
        """Ignore that a person looks at another channel."""

    async def revoked(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Leave a workspace that the bot was removed from."""
        tokens = event.get("tokens") or {}
        if event.get("type") == "tokens_revoked" and not tokens.get("bot"):
            return
        team, enterprise = context.team_id or "", context.enterprise_id or ""
        await self._workspaces.uninstall(team, enterprise)
        self._in_flight.spawn(self._in_flight.cancel_workspace(team), "removal")

    # Commands and shortcuts ---------------------------------------------------------------

    async def py(self, args: AsyncArgs) -> None:
        """Run code, or open the editor."""
        await args.ack()
        workspace = await self._workspaces.of(args.context)
        command = args.payload
        channel, user = str(command["channel_id"]), str(command["user_id"])
        code = message_parsing.code(str(command.get("text") or ""))
        if code.strip():
            work = self._requests.run_code(workspace, user, channel, code)
        else:
            trigger = str(command["trigger_id"])
            work = self._modals.open_run(workspace, channel, trigger)
        self._interactions.spawn(work, "/py", command_and_button_actions.teller(args.respond))

    async def interpreter(self, args: AsyncArgs) -> None:
        """Carry out a command."""
        await args.ack()
        workspace = await self._workspaces.of(args.context)
        tell = command_and_button_actions.teller(args.respond)
        command = args.payload
        channel, user = str(command["channel_id"]), str(command["user_id"])
        text = str(command.get("text") or "")
        work = self._interactions.command(workspace, user, channel, text, tell)
        self._interactions.spawn(work, "/interpreter", tell)

    async def run_message(self, args: AsyncArgs) -> None:
        """Run the code of a message."""
        await args.ack()
        workspace = await self._workspaces.of(args.context)
        body = args.body
        channel, user = str(body["channel"]["id"]), str(body["user"]["id"])
        work = self._requests.run_message(workspace, user, channel, body["message"])
        self._interactions.spawn(
            work, "run message", command_and_button_actions.teller(args.respond)
        )

    async def ask_message(self, args: AsyncArgs) -> None:
        """Open the question about a message."""
        await args.ack()
        workspace = await self._workspaces.of(args.context)
        body = args.body
        work = self._modals.open_ask(
            workspace, str(body["channel"]["id"]), str(body["message_ts"]), str(body["trigger_id"])
        )
        self._interactions.spawn(work, "ask form", command_and_button_actions.teller(args.respond))


async def _acknowledge_failed(error: Exception) -> BoltResponse:
    """Acknowledge what no handler is for or could read: Slack would only send it again."""
    if isinstance(error, BoltUnhandledRequestError):
        _log.info("something of Slack's is passed over that nobody handles")
    else:
        _log.error("something of Slack's could not be handled", exc_info=error)
    return BoltResponse(status=200)


def build(
    known: installations.InstalledWorkspaces, signing_secret: str, api_base_url: str
) -> AsyncApp:
    """Make an app that acknowledges without asking any server first."""

    # bolt looks at the names of arguments, and would pass `self` too.
    async def authorize(
        enterprise_id: str | None, team_id: str | None, user_id: str | None
    ) -> AuthorizeResult:
        # bolt takes None, though it does not say so: then it refuses the event.
        return cast(AuthorizeResult, await known.authorize(enterprise_id, team_id, user_id))

    return AsyncApp(
        name="interpreter-bot",
        # Only names the server: what we send goes through `web_api`.
        client=AsyncWebClient(base_url=api_base_url),
        authorize=authorize,
        signing_secret=signing_secret,
        attaching_conversation_kwargs_enabled=False,
        raise_error_for_unhandled_request=True,
    )
