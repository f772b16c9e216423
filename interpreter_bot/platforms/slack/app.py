"""The bolt app: a listener for each event, command, shortcut, button and form.

Each is acknowledged at once, and handled in a task of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, cast

from slack_bolt.async_app import AsyncApp, AsyncBoltContext
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.kwargs_injection.async_args import AsyncArgs
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.chat import buttons, commands, in_flight
from interpreter_bot.platforms.slack import (
    admin_views,
    button_actions,
    command_views,
    handler_dependencies,
    home_and_modal_views,
    home_tab,
    installations,
    interaction_requests,
    message_events,
    message_parsing,
    message_posting,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import run_words

_log = logging.getLogger(__name__)

EVENTS: Final = (
    *("agent_session_stopped", "agent_session_title_changed", "app_context_changed"),
    *("app_home_opened", "app_mention", "app_uninstalled", "message.channels", "message.groups"),
    *("message.im", "message.mpim", "tokens_revoked"),
)
"""Events to which the manifest subscribes."""

COMMANDS: Final = ("/py", "/interpreter")
SHORTCUTS: Final = ("run_message", "ask_message")
_MAX_TITLE_CHARACTERS: Final = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """A form that a person submitted, with the metadata that it was opened with."""

    place: message_posting.Place
    metadata: Mapping[str, Any]
    view: home_and_modal_views.View

    @property
    def text(self) -> str:
        """The text of its only field."""
        return home_and_modal_views.submitted_text(self.view)


_HandleSubmission: TypeAlias = Callable[[Submission], Coroutine[Any, Any, None]]
_Listener: TypeAlias = Callable[[AsyncArgs], Awaitable[None]]


class Listeners:
    """Listeners that bolt calls."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        requests_in_flight: in_flight.RequestsInFlight,
        messages: message_events.MessageEvents,
        interactions: interaction_requests.InteractionRequests,
        buttons: button_actions.ButtonActions,
        slack_commands: command_views.SlackCommands,
        home: home_tab.HomeTab,
    ) -> None:
        self._service = shared.service
        self._api = shared.api
        self._workspaces = shared.workspaces
        self._permissions = shared.permissions
        self._in_flight = requests_in_flight
        self._messages = messages
        self._interactions = interactions
        self._buttons = buttons
        self._commands = slack_commands
        self._home = home

    def register(self, app: AsyncApp) -> None:
        """Register the listeners with an app."""
        for name in ("message", "app_mention"):
            app.event(name)(self.on_message)
        app.event("app_home_opened")(self.on_home_opened)
        app.event("agent_session_stopped")(self.on_stop)
        app.event("agent_session_title_changed")(self.on_title_change)
        app.event("app_context_changed")(self.on_context_change)
        app.event("tokens_revoked")(self.on_removal)
        app.event("app_uninstalled")(self.on_removal)
        app.command("/py")(self.on_py_command)
        app.command("/interpreter")(self.on_interpreter_command)
        app.shortcut("run_message")(self.on_run_shortcut)
        app.shortcut("ask_message")(self.on_ask_shortcut)
        for button, press in self._buttons.actions_by_name.items():
            app.action(button)(self._press_listener(press))
        app.action(admin_views.CHANGE_ACCESS)(self._press_listener(self.open_access_form))
        app.action(re.compile("^home_"))(self._press_listener(self.on_home_press))
        app.view(home_and_modal_views.RUN_FORM)(self._form_listener(self.run_code))
        app.view(home_and_modal_views.ASK_FORM)(self._form_listener(self.ask_about_message))
        app.view(home_and_modal_views.EDIT_FORM)(self._form_listener(self.approve_edited))
        app.view(home_and_modal_views.ANSWER_FORM)(self._form_listener(self.answer_question))
        app.view(home_and_modal_views.COMMAND_FORM)(self._form_listener(self.submit_command_form))
        app.view(admin_views.ACCESS_FORM)(self._form_listener(self.store_access))
        app.error(_acknowledge_failure)

    # Events -------------------------------------------------------------------------------

    async def on_message(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Receive a message."""
        workspace = await self._workspaces.of_event(context)
        self._in_flight.spawn(self._messages.on_event(workspace, event), "message")

    async def on_home_opened(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Show the home tab, or suggest prompts."""
        workspace = await self._workspaces.of_event(context)
        user = str(event["user"])
        if event.get("tab") == "messages":
            work = self._home.suggest_prompts(workspace, str(event["channel"]))
        else:
            work = self._home.show(workspace, user)
        self._in_flight.spawn(work, "home")

    async def on_stop(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Stop the answers of a thread, for Slack's own Stop button."""
        workspace = await self._workspaces.of_event(context)
        place = message_posting.Place(
            workspace,
            str(event["channel"]),
            thread=str(event["thread_ts"]),
            request_ts="",
            user=str(event.get("user", "")),
        )
        self._in_flight.spawn(self._stop_thread(place), "stop")

    async def _stop_thread(self, place: message_posting.Place) -> None:
        workspace, channel = place.workspace, place.channel
        stopped_thread = workspace.team, channel, place.thread
        try:
            profile = await self._permissions.require(workspace, place.user, channel)
            if await self._in_flight.stop(
                lambda entry: (
                    (entry.location.session.workspace, entry.location.channel, entry.thread)
                    == stopped_thread
                ),
                "" if profile.is_admin else place.user,
            ):
                return
        except errors.BotError as error:
            await message_posting.whisper(self._api, place, str(error))
            return
        # The bot that ran it died before it could show the end.
        await self._api.call(
            workspace,
            "agents.sessions.setStatus",
            channel_id=channel,
            thread_ts=place.thread,
            status="active",
        )
        await message_posting.whisper(self._api, place, run_words.NOTHING_RUNS)

    async def on_title_change(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Store the title that a person gave a session."""
        workspace = await self._workspaces.of_event(context)
        channel, thread = str(event.get("channel", "")), str(event.get("thread_ts", ""))
        user, title = str(event.get("user", "")), str(event.get("title", ""))
        if channel and thread and title:
            self._in_flight.spawn(self._rename(workspace, user, channel, thread, title), "title")

    async def _rename(
        self,
        workspace: installations.InstalledWorkspace,
        user: str,
        channel: str,
        thread: str,
        title: str,
    ) -> None:
        await self._permissions.require(workspace, user, channel)
        key = values.SessionKey("slack", workspace.team, channel, thread)
        await self._service.rename(key, title[:_MAX_TITLE_CHARACTERS])

    async def on_context_change(self) -> None:
        """Ignore that a person opened another channel."""

    async def on_removal(self, event: dict[str, Any], context: AsyncBoltContext) -> None:
        """Forget a workspace from which the bot was removed."""
        tokens = event.get("tokens") or {}
        if event.get("type") == "tokens_revoked" and not tokens.get("bot"):
            return
        team, enterprise = context.team_id or "", context.enterprise_id or ""
        try:
            if event.get("type") == "app_uninstalled" and team:
                await self._service.places.erase(values.Scope("slack", team))
        finally:
            # With the only workspace, the platform ends.
            await self._workspaces.uninstall(team, enterprise)
        work = self._in_flight.stop(lambda entry: entry.location.session.workspace == team)
        self._in_flight.spawn(work, "removal")

    # Commands and shortcuts ---------------------------------------------------------------

    async def on_py_command(self, args: AsyncArgs) -> None:
        """Run code, or open the editor."""
        await args.ack()
        command = args.payload
        place = await self._make_place(args, str(command["channel_id"]))
        code = message_parsing.code(str(command.get("text") or ""))
        if code.strip():
            work = self._interactions.run_code(place, code)
        else:
            view = home_and_modal_views.make_run_form({"channel": place.channel})
            work = self._buttons.open_form(place, str(command["trigger_id"]), view)
        self._in_flight.spawn(work, "/py", refuse=button_actions.text_sender(args.respond))

    async def on_interpreter_command(self, args: AsyncArgs) -> None:
        """Carry out a command."""
        await args.ack()
        command, reply = args.payload, button_actions.text_sender(args.respond)
        place = await self._make_place(args, str(command["channel_id"]))
        trigger_id = str(command.get("trigger_id") or "")
        work = self._run_command(place, str(command.get("text") or ""), reply, trigger_id)
        self._in_flight.spawn(work, "/interpreter", refuse=reply)

    async def _run_command(
        self,
        place: message_posting.Place,
        text: str,
        reply: command_views.SendText,
        trigger_id: str,
    ) -> None:
        """Run `/interpreter …` for the channel's own session.

        Raises:
            BotError: the person may not run it, or it failed.
        """
        workspace, user, channel = place.workspace, place.user, place.channel
        profile = await self._permissions.require(workspace, user, channel)
        command = command_table.parse_words(message_parsing.readable_text(text), "slack")
        command = command or commands.invocation_of("slack", "help")
        key = values.SessionKey("slack", workspace.team, channel)
        if command.command.name == "py":
            code = message_parsing.code(text.strip()[2:].lstrip())
            await self._interactions.run_code(place, code)
        elif command.command.is_request:
            command_place = self._commands.command_place(key, place, profile)
            code = await command_table.find_code(command, command_place)
            await self._interactions.run_code(place, code)
        else:
            async with self._interactions.claimed_command(place):
                command_place = self._commands.command_place(key, place, profile)
                view = self._commands.make_view(key, place, reply, trigger_id)
                await commands.carry_out(command, command_place, view)

    async def on_run_shortcut(self, args: AsyncArgs) -> None:
        """Run the code of a message."""
        await args.ack()
        body = args.body
        place = await self._make_place(args, str(body["channel"]["id"]))
        work = self._interactions.run_message(place, body["message"])
        self._in_flight.spawn(work, "run message", refuse=button_actions.text_sender(args.respond))

    async def on_ask_shortcut(self, args: AsyncArgs) -> None:
        """Open the form for a question about a message."""
        await args.ack()
        body = args.body
        place = await self._make_place(args, str(body["channel"]["id"]))
        view = home_and_modal_views.make_ask_form(
            {"channel": place.channel, "ts": str(body["message_ts"])}
        )
        work = self._buttons.open_form(place, str(body["trigger_id"]), view)
        self._in_flight.spawn(work, "ask form", refuse=button_actions.text_sender(args.respond))

    async def _make_place(self, args: AsyncArgs, channel: str) -> message_posting.Place:
        """Return the place where a person acts."""
        workspace = await self._workspaces.of_event(args.context)
        user = str(args.context.user_id or "")
        return message_posting.Place(workspace, channel, thread="", request_ts="", user=user)

    # Buttons ------------------------------------------------------------------------------

    def _press_listener(self, handle: button_actions.Action) -> _Listener:
        """Return the listener of a button."""

        async def listener(args: AsyncArgs) -> None:
            await args.ack()
            channel = str((args.body.get("channel") or {}).get("id", ""))
            press = button_actions.parse_press(await self._make_place(args, channel), args)
            self._in_flight.spawn(handle(press), press.action, refuse=press.reply)

        return listener

    async def open_access_form(self, press: button_actions.Press) -> None:
        """Open the admins' form."""
        await self._home.open_form(press.place.workspace, press.trigger_id)

    async def on_home_press(self, press: button_actions.Press) -> None:
        """Handle a button of the home tab."""
        place = press.place
        await self._home.press(place.workspace, place.user, press.action, press.value)

    # Forms --------------------------------------------------------------------------------

    def _form_listener(self, handle: _HandleSubmission) -> _Listener:
        """Return the listener of a form."""

        async def listener(args: AsyncArgs) -> None:
            await args.ack()
            metadata = json.loads(args.payload.get("private_metadata") or "{}")
            place = await self._make_place(args, str(metadata.get("channel", "")))
            form = Submission(place, metadata, args.payload)

            async def reply(sentence: str) -> None:
                if place.channel:
                    await message_posting.whisper(self._api, place, sentence)

            self._in_flight.spawn(handle(form), "form", refuse=reply)

        return listener

    async def run_code(self, form: Submission) -> None:
        """Run the code of the editor."""
        await self._interactions.run_code(form.place, code_reading.read_as_code(form.text))

    async def ask_about_message(self, form: Submission) -> None:
        """Ask the model about a message."""
        await self._interactions.ask_about(form.place, str(form.metadata["ts"]), form.text)

    async def approve_edited(self, form: Submission) -> None:
        """Approve what was edited."""
        question = self._service.questions.find(str(form.metadata["question"]))
        await self._answer(form, buttons.read_edited(question, form.text))

    async def answer_question(self, form: Submission) -> None:
        """Answer a question of running code, or of the model."""
        await self._answer(form, form.text)

    async def _answer(self, form: Submission, text: str) -> None:
        question_id = str(form.metadata["question"])
        await self._buttons.respond(form.place, question_id, "answer", text)

    async def submit_command_form(self, form: Submission) -> None:
        """Carry out what was entered into the form of a command."""
        place = form.place
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        key = values.SessionKey("slack", place.workspace.team, place.channel)
        name, argument = form.metadata["command"]
        send_text = functools.partial(message_posting.whisper, self._api, place)
        await commands.carry_out(
            commands.invocation_of("slack", name, argument),
            self._commands.command_place(key, place, profile),
            self._commands.make_view(key, place, send_text),
            home_and_modal_views.entered_values(form.view),
        )

    async def store_access(self, form: Submission) -> None:
        """Store what an admin chose."""
        await self._home.store_choices(form.place.workspace, form.place.user, form.view)


async def _acknowledge_failure(error: Exception) -> BoltResponse:
    """Acknowledge an event without a listener, or whose listener failed: Slack would resend it."""
    if isinstance(error, BoltUnhandledRequestError):
        _log.info("Slack sent an event that has no listener")
    else:
        _log.error("an event of Slack could not be handled", exc_info=error)
    return BoltResponse(status=200)


def build_app(
    workspaces: installations.InstalledWorkspaces, signing_secret: str, api_base_url: str
) -> AsyncApp:
    """Make an app that acknowledges events without calling Slack first."""

    # A function and not a method: bolt passes arguments by name, and would pass `self`.
    async def authorize(
        enterprise_id: str | None, team_id: str | None, user_id: str | None
    ) -> AuthorizeResult:
        # bolt refuses the event if this is None, which its types do not say.
        return cast(AuthorizeResult, await workspaces.authorize(enterprise_id, team_id, user_id))

    return AsyncApp(
        name="interpreter-bot",
        # It only names the server: our own calls go through `web_api`.
        client=AsyncWebClient(base_url=api_base_url),
        authorize=authorize,
        signing_secret=signing_secret,
        attaching_conversation_kwargs_enabled=False,
        raise_error_for_unhandled_request=True,
    )
