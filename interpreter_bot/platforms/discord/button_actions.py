"""Actions of the buttons below answers."""

from __future__ import annotations

from typing import Any, Final

import discord

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.chat import buttons, commands, transport
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    command_views,
    interactions,
    markdown,
    modals,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.platforms.rendering import past_code, query_listings
from interpreter_bot.text import safe_text
from interpreter_bot.wording import discord_words, question_words, run_words

_MODAL_ACTIONS: Final = frozenset({"answer", "change"})
_ANSWERING_ACTIONS: Final = frozenset({"run", "refuse", values.FOR_SESSION}) | _MODAL_ACTIONS


class ButtonActions:
    """Runs the actions of buttons."""

    def __init__(self, handler: interactions.InteractionHandler) -> None:
        self._handler = handler
        self._service = handler.service

    async def press(self, interaction: discord.Interaction[Any], button: transport.Button) -> None:
        """Handle a press of a button."""
        try:
            await self._press(interaction, button)
        except Exception as error:
            # The library would only log it, and leave the person without an answer.
            await self._handler.report_error(interaction, error)

    async def _press(self, interaction: discord.Interaction[Any], button: transport.Button) -> None:
        if button.action in _ANSWERING_ACTIONS or button.action.startswith(events.PICK_PREFIX):
            await self._answer(interaction, button)
        elif button.action == "stop":
            await self._stop(interaction, button)
        elif button.action == "again":
            await self._handler.rerun(interaction, int(button.subject_id))
        elif button.action in command_views.CONFIRMED_COMMANDS:
            await self._decide(interaction, button)
        elif await self._handler.acknowledge_and_claim(interaction):
            if button.action == "code":
                await self._show_code(interaction, int(button.subject_id))
            else:
                await commands.send_omitted(
                    button.action,
                    button.subject_id,
                    command_views.command_place_at_interaction(self._handler, interaction),
                    command_views.InteractionView(self._handler, interaction),
                )

    async def _decide(
        self, interaction: discord.Interaction[Any], button: transport.Button
    ) -> None:
        """Run or drop a command that was written as a message."""
        if str(interaction.user.id) != button.owner and not modals.is_admin(interaction):
            await self._handler.reply(interaction, question_words.NOT_YOURS)
            return
        if not await self._handler.acknowledge_and_claim(interaction, is_silent=True):
            return
        invocation = None
        if command := command_views.CONFIRMED_COMMANDS[button.action]:
            name, argument = command
            argument = button.subject_id if name == "undo" else argument
            invocation = commands.invocation_of(channels_and_threads.PLATFORM, name, argument)
        await commands.decide(
            invocation,
            command_views.command_place_at_interaction(self._handler, interaction),
            command_views.QuestionView(self._handler, interaction),
            question=f"{interaction.message.id if interaction.message else 0}",
        )

    async def _stop(self, interaction: discord.Interaction[Any], button: transport.Button) -> None:
        is_moderator = interaction.permissions.manage_messages
        if str(interaction.user.id) != button.owner and not is_moderator:
            await self._handler.reply(interaction, question_words.NOT_YOURS)
            return
        if not await self._handler.acknowledge_and_claim(interaction, is_silent=True):
            return
        in_flight = self._handler.in_flight
        if not await in_flight.stop(lambda entry: entry.id == button.subject_id):
            await self._handler.reply(interaction, run_words.NOTHING_RUNS)

    async def _show_code(self, interaction: discord.Interaction[Any], turn_id: int) -> None:
        place = channels_and_threads.place_at_interaction(interaction)
        past_turns = await self._service.queries.history(place.key)
        turn = past_code.find_turn(past_turns, str(turn_id))
        runs = past_code.list_runs(turn)
        sql = query_listings.write_script(turn.queries)
        text = "\n".join([*filter(None, map(_draw_run, runs)), markdown.code(sql, "sql")]).strip()
        # A block cannot hold three backticks, and a copy of changed code would not run.
        is_faithful = all(run.code.strip() in text for run in runs)
        if is_faithful and len(text) <= discord_transport.MAX_CHARACTERS:
            await self._handler.reply(interaction, text)
            return
        files = past_code.make_files(runs) | ({"queries.sql": sql.encode()} if sql else {})
        uploads = tuple(commands.make_upload(name, data, len(data)) for name, data in files.items())
        await self._handler.reply(interaction, past_code.HEADING, uploads=uploads)

    async def _answer(
        self, interaction: discord.Interaction[Any], button: transport.Button
    ) -> None:
        action, question_id = button.action, button.subject_id
        if str(interaction.user.id) != button.owner and not modals.is_admin(interaction):
            await self._handler.reply(interaction, question_words.NOT_YOURS)
        elif action in _MODAL_ACTIONS:
            if await self._handler.check_permissions(interaction):
                await self._open_modal(interaction, question_id)
        else:
            await modals.respond(self._handler, interaction, question_id, action)

    async def _open_modal(self, interaction: discord.Interaction[Any], question_id: str) -> None:
        """Open a modal for an answer; Discord accepts it only as the first response."""
        person, is_admin = str(interaction.user.id), modals.is_admin(interaction)
        questions = self._service.questions
        try:
            question = questions.require_answerable(question_id, person, is_admin=is_admin)
        except errors.BotError as error:
            await self._handler.reply(interaction, str(error))
            return
        if isinstance(question, events.InputQuestion):
            await modals.open_modal(
                self._handler,
                interaction,
                "Answer",
                question_words.ANSWER_LABEL if question.is_of_model else discord_words.INPUT_TITLE,
                purpose=modals.ANSWER,
                subject_id=int(question.id),
                is_paragraph=False,
                is_required=False,
            )
        else:
            await self._open_editor(interaction, question)

    async def _open_editor(
        self, interaction: discord.Interaction[Any], question: events.ApprovalQuestion
    ) -> None:
        code = question.code
        if not question.can_edit:
            await self._send_for_approval(interaction, question, question_words.NOT_EDITABLE)
            return
        if str(interaction.user.id) != question.person:
            await self._send_for_approval(interaction, question, question_words.EDITED_BY_ASKER)
            return
        if len(code) > modals.MAX_CHARACTERS:
            await self._send_for_approval(interaction, question, question_words.TOO_LONG_TO_EDIT)
            return
        title, label, _ = question_words.edit_form(question.subject)
        await modals.open_modal(
            self._handler,
            interaction,
            title,
            label,
            purpose=modals.CHANGE,
            subject_id=int(question.id),
            default=code,
        )

    async def _send_for_approval(
        self,
        interaction: discord.Interaction[Any],
        question: events.ApprovalQuestion,
        reason: str,
    ) -> None:
        """Send all of the code as a file with buttons to approve or decline it; say why.

        The response to an interaction may have files even if the bot may attach none there.
        """
        revealed_code = safe_text.reveal_hidden(question.code)
        data = revealed_code.text.encode()
        warning = f"⚠️ {revealed_code.warning}" if revealed_code.warning else ""
        await self._handler.reply(
            interaction,
            question_words.all_code(reason, warning).rstrip(),
            uploads=(commands.make_upload("to-approve.py", data, len(data)),),
            shown_buttons=tuple(
                buttons.make(action, question.id, question.person) for action in ("run", "refuse")
            ),
        )


def _draw_run(run: past_code.CodeRun) -> str:
    words = markdown.small_print(markdown.escape(run.words)) if run.words else ""
    output = f"{markdown.small_print(past_code.OUTPUT_HEADING)}\n{markdown.code(run.output)}"
    code = markdown.code(run.code, "py")
    return "\n".join(filter(None, (words, code, output if run.output else "")))
