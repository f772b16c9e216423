"""Buttons and forms, as bolt calls us about them."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from slack_bolt.async_app import AsyncAck, AsyncBoltContext, AsyncRespond

from interpreter_bot.platforms.slack import (
    admitting,
    blocks,
    commands,
    forms,
    governing,
    homes,
    incoming,
    interacting,
    opinions,
    places,
    telling,
    turning,
    views,
    workspaces,
)

_log = logging.getLogger(__name__)

_FEEDBACK: Final = "Thank you; noted."


class Presses:
    """Does what is pressed and takes what is filled in."""

    def __init__(
        self,
        known: workspaces.Workspaces,
        turns: turning.Turns,
        interactions: interacting.Interactions,
        form: forms.Forms,
        home: homes.Homes,
        door: admitting.Doorkeeper,
        thought: opinions.Opinions,
    ) -> None:
        self._workspaces = known
        self._turns = turns
        self._interactions = interactions
        self._forms = form
        self._homes = home
        self._door = door
        self._opinions = thought

    async def action(
        self,
        ack: AsyncAck,
        body: dict[str, Any],
        action: dict[str, Any],
        context: AsyncBoltContext,
        respond: AsyncRespond,
    ) -> None:
        """Do what was pressed."""
        await ack()
        workspace = await self._workspaces.of(context)
        user = str(body["user"]["id"])
        name = str(action["action_id"])
        chosen = action.get("selected_option") or action
        value = str(chosen.get("value") or action.get("selected_user") or "")
        trigger = str(body.get("trigger_id", ""))
        channel = str((body.get("channel") or {}).get("id", ""))
        tell = telling.teller(respond) if channel else None
        if name == governing.CHANGE:
            work = self._homes.form(workspace, trigger)
        elif name.startswith("home_"):
            work = self._homes.press(workspace, user, name, value)
        elif name.startswith(blocks.WHOLE):
            place = _place(workspace, user, channel, body)
            work = self._interactions.send_table(workspace, user, place, value)
        else:
            work = self._pressed(workspace, user, channel, name, value, trigger, tell)
        self._turns.spawn(telling.told(work, tell), name)

    async def _pressed(
        self,
        workspace: workspaces.Workspace,
        user: str,
        channel: str,
        name: str,
        value: str,
        trigger: str,
        tell: commands.Tell | None,
    ) -> None:
        doing, form = self._interactions, self._forms
        match name:
            case blocks.STOP:
                await doing.stop(workspace, user, channel, value)
            case blocks.FEEDBACK:
                opinion, _, turn = value.partition(" ")
                await self._door.admit(workspace, user, channel)
                await self._opinions.note(workspace.team, user, turn, opinion)
                if tell:
                    await tell(_FEEDBACK)
            case blocks.RUN:
                await form.decide(workspace, user, channel, value, form.code_of(value))
            case blocks.CANCEL:
                await form.decide(workspace, user, channel, value, None)
            case blocks.EDIT:
                question = await form.question(workspace, user, channel, value)
                await form.open_edit(workspace, channel, question, trigger)
            case blocks.ANSWER:
                question = await form.question(workspace, user, channel, value)
                await form.open_answer(workspace, channel, question, trigger)
            case _:
                _log.info("a button we do not know: %r", name)

    # Forms --------------------------------------------------------------------------------

    async def submitted(
        self, ack: AsyncAck, body: dict[str, Any], view: dict[str, Any], context: AsyncBoltContext
    ) -> None:
        """Take a form that was filled in."""
        await ack()
        workspace = await self._workspaces.of(context)
        user = str(body["user"]["id"])
        facts = json.loads(view.get("private_metadata") or "{}")
        channel = str(facts.get("channel", ""))
        text = views.field(view)

        async def tell(sentence: str) -> None:
            if channel:
                await self._interactions.whisper(workspace, user, channel, sentence)

        doing = self._interactions
        match view.get("callback_id"):
            case views.RUN_FORM:
                code = incoming.straightened(text)
                work = doing.run_code(workspace, user, channel, code)
            case views.ASK_FORM:
                work = doing.ask_about(workspace, user, channel, str(facts["ts"]), text)
            case views.EDIT_FORM | views.ANSWER_FORM:
                work = self._forms.decide(workspace, user, channel, str(facts["question"]), text)
            case governing.FORM:
                work = self._homes.choose(workspace, user, view)
            case other:
                _log.info("a form we do not know: %r", other)
                return
        self._turns.spawn(telling.told(work, tell), "form")


def _place(
    workspace: workspaces.Workspace, user: str, channel: str, body: dict[str, Any]
) -> places.Place:
    """Say in which thread a message stands that has the button."""
    message = body.get("message") or {}
    root = str(message.get("thread_ts") or message.get("ts") or "")
    return places.Place(workspace, channel, thread=root, asked="", user=user)
