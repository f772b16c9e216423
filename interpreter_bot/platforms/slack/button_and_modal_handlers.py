"""Button presses and submitted modals, as bolt delivers them."""

from __future__ import annotations

import json
import logging
from typing import Any

from slack_bolt.kwargs_injection.async_args import AsyncArgs

from interpreter_bot.platforms.slack import (
    admin_views,
    blocks,
    command_and_button_actions,
    handler_dependencies,
    home_and_modal_views,
    home_tab,
    installations,
    interaction_requests,
    message_posting,
    modals,
    subcommands,
)
from interpreter_bot.text import code_reading
from interpreter_bot.wording import command_words

_log = logging.getLogger(__name__)


class ButtonAndModalHandlers:
    """Handles block actions and view submissions."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        interaction_handlers: command_and_button_actions.CommandActions,
        asked: interaction_requests.InteractionRequests,
        modal_views: modals.Modals,
        home: home_tab.HomeTab,
        feedback: home_tab.Feedback,
        commands: subcommands.CommandEffects,
    ) -> None:
        self._commands = commands
        self._workspaces = shared.workspaces
        self._permissions = shared.permissions
        self._interactions = interaction_handlers
        self._requests = asked
        self._modals = modal_views
        self._home = home
        self._feedback = feedback

    async def action(self, args: AsyncArgs) -> None:
        """Handle a block action."""
        await args.ack()
        workspace = await self._workspaces.of(args.context)
        body, action = args.body, args.payload
        user = str(body["user"]["id"])
        name = str(action["action_id"])
        chosen = action.get("selected_option") or action
        value = str(chosen.get("value") or action.get("selected_user") or "")
        trigger = str(body.get("trigger_id", ""))
        channel = str((body.get("channel") or {}).get("id", ""))
        tell = command_and_button_actions.teller(args.respond) if channel else None
        if name == admin_views.CHANGE:
            work = self._home.form(workspace, trigger)
        elif name.startswith("home_"):
            work = self._home.press(workspace, user, name, value)
        elif name.startswith(blocks.WHOLE):
            place = _place(workspace, user, channel, body)
            work = self._interactions.send_table(workspace, user, place, value)
        elif name in (blocks.CONFIRM, blocks.DISMISS):
            ts = str((body.get("message") or {}).get("ts", ""))
            work = self._commands.confirmed(
                _place(workspace, user, channel, body),
                ts,
                value,
                is_confirmed=name == blocks.CONFIRM,
            )
        elif name == blocks.VISIT:
            place = _place(workspace, user, channel, body)
            work = self._interactions.send_link(workspace, user, place, value)
        else:
            place = _place(workspace, user, channel, body)
            work = self._interactions.closing_unfinished(
                place, self._pressed(place, name, value, trigger, tell)
            )
        self._interactions.spawn(work, name, tell)

    async def _pressed(
        self,
        place: message_posting.Place,
        name: str,
        value: str,
        trigger: str,
        tell: subcommands.Tell | None,
    ) -> None:
        doing, form = self._interactions, self._modals
        workspace, user, channel = place.workspace, place.user, place.channel
        match name:
            case blocks.STOP:
                await doing.stop(workspace, user, channel, value)
            case blocks.QUERIES:
                shown = await doing.queries(workspace, user, channel, value)
                if tell:
                    await tell(shown)
            case blocks.CODE:
                await doing.show_code(place, value)
            case blocks.FEEDBACK:
                opinion, _, turn = value.partition(" ")
                await self._permissions.require(workspace, user, channel)
                await self._feedback.note(workspace.team, user, turn, opinion)
                if tell:
                    await tell(command_words.THANKS)
            case blocks.RUN:
                question = await form.question(workspace, user, channel, value)
                await form.resolve(question, question.code)
            case blocks.CANCEL:
                await form.decide(workspace, user, channel, value, None)
            case blocks.EDIT:
                question = await form.question(workspace, user, channel, value, edits=True)
                await form.open_edit(workspace, channel, question, trigger)
            case _ if name.startswith(blocks.CHOICE):
                choice = name.removeprefix(blocks.CHOICE)
                await form.decide(workspace, user, channel, value, choice)
            case blocks.ANSWER:
                question = await form.question(workspace, user, channel, value)
                await form.open_answer(workspace, channel, question, trigger)
            case _:
                _log.info("a button we do not know: %r", name)

    # Forms --------------------------------------------------------------------------------

    async def submitted(self, args: AsyncArgs) -> None:
        """Handle a submitted modal."""
        await args.ack()
        workspace = await self._workspaces.of(args.context)
        view, user = args.payload, str(args.body["user"]["id"])
        facts = json.loads(view.get("private_metadata") or "{}")
        channel = str(facts.get("channel", ""))
        text = home_and_modal_views.field(view)

        async def tell(sentence: str) -> None:
            if channel:
                await self._interactions.whisper(workspace, user, channel, sentence)

        match view.get("callback_id"):
            case home_and_modal_views.RUN_FORM:
                code = code_reading.code_of(text)
                work = self._requests.run_code(workspace, user, channel, code)
            case home_and_modal_views.ASK_FORM:
                ts = str(facts["ts"])
                work = self._requests.ask_about(workspace, user, channel, ts, text)
            case home_and_modal_views.EDIT_FORM | home_and_modal_views.ANSWER_FORM:
                question = str(facts["question"])
                work = self._modals.decide(workspace, user, channel, question, text, edits=True)
            case admin_views.FORM:
                work = self._home.choose(workspace, user, view)
            case other:
                _log.info("a form we do not know: %r", other)
                return
        self._interactions.spawn(work, "form", tell)


def _place(
    workspace: installations.InstalledWorkspace, user: str, channel: str, body: dict[str, Any]
) -> message_posting.Place:
    """Return the place of the message with the button."""
    message = body.get("message") or {}
    root = str(message.get("thread_ts") or message.get("ts") or "")
    return message_posting.Place(workspace, channel, thread=root, asked="", user=user)
