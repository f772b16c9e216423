"""What buttons do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import discord

from interpreter_bot import errors
from interpreter_bot.platforms.discord import (
    escaping,
    handing,
    interacting,
    modals,
    places,
    questions,
    sheets,
    stale_answers,
    stories,
)
from interpreter_bot.sessions import histories
from interpreter_bot.text import sanitizing

_NOT_YOURS: Final = "Only who asked may do that."
_CLOSED: Final = "That question is not open any more."
_QUESTIONS: Final = frozenset({"answer", "run", "change", "refuse"})


class Presser:
    """Carries out what buttons mean; whatever it needs to know is in the button and the place."""

    def __init__(self, interactor: interacting.Interactor) -> None:
        self._interactor = interactor
        self._talks = interactor.talks

    async def press(self, interaction: discord.Interaction[Any], button: sheets.Button) -> None:
        """Answer somebody who pressed a button."""
        try:
            await self._press(interaction, button)
        except Exception as error:
            # The library would only log it, and leave the person without an answer.
            await self._interactor.failed(interaction, error)

    async def _press(self, interaction: discord.Interaction[Any], button: sheets.Button) -> None:
        place = places.of_interaction(interaction, button.owner)
        is_owner = interaction.user.id == button.owner
        if button.verb in _QUESTIONS:
            await self._answer(interaction, button)
        elif button.verb == "stop":
            await self._stop(interaction, button)
        elif not (place.is_member or is_owner):
            # Where the bot is not, a conversation is one person's, however public an answer is.
            await self._interactor.tell(interaction, _NOT_YOURS)
        elif button.verb == "again":
            await self._interactor.again(interaction, place, button.number)
        elif await self._interactor.begins(interaction):
            await self._give(interaction, place, button)

    async def _give(
        self, interaction: discord.Interaction[Any], place: places.Place, button: sheets.Button
    ) -> None:
        """Give what an answer left out, to whoever asked for it alone."""
        if button.verb == "notebook":
            await handing.notebook(self._interactor, interaction, place)
        elif button.verb == "code":
            await self._show_code(interaction, place, button.number)
        elif button.verb == "csv":
            handle = stories.table_handle(button.number)
            name = await self._talks.save_table(place.key, handle)
            await handing.hand_out(self._interactor, interaction, place, name)

    async def _stop(self, interaction: discord.Interaction[Any], button: sheets.Button) -> None:
        is_moderator = interaction.permissions.manage_messages
        if interaction.user.id != button.owner and not is_moderator:
            await self._interactor.tell(interaction, _NOT_YOURS)
            return
        if not await self._interactor.begins(interaction, is_silent=True):
            return
        requester = self._interactor.requester
        if not await requester.stop_numbered(button.number):
            await self._interactor.tell(interaction, "Nothing is running any more.")
            if not requester.is_running(button.number):
                # As it stands now: who pressed the button may have seen it as it was.
                message = await interaction.original_response()
                await stale_answers.mend(message, requester.is_running)

    async def _show_code(
        self, interaction: discord.Interaction[Any], place: places.Place, turn_id: int
    ) -> None:
        turn = next((t for t in await self._talks.history(place.key) if t.id == turn_id), None)
        codes = [part.code for part in turn.parts if _is_code(part)] if turn else []  # type: ignore[union-attr]
        if not codes:
            raise errors.BotError("That answer is too long ago.")
        shown = "\n".join(escaping.code(code, "py") for code in codes)
        if len(shown) <= sheets.MOST_CHARACTERS:
            await self._interactor.tell(interaction, shown)
            return
        upload = handing.in_memory("code.py", _joined(codes).encode())
        await self._interactor.tell(interaction, "All code of that answer:", uploads=(upload,))

    async def _answer(self, interaction: discord.Interaction[Any], button: sheets.Button) -> None:
        question = self._interactor.requester.questions.find(button.number)
        if question is None or question.owner != button.owner or question.answer.done():
            await self._interactor.tell(interaction, _CLOSED)
        elif interaction.user.id != question.owner:
            await self._interactor.tell(interaction, _NOT_YOURS)
        elif button.verb == "answer":
            if await self._interactor.admits(interaction):
                await interaction.response.send_modal(self._answering(question))
        elif button.verb == "change":
            if await self._interactor.admits(interaction):
                await self._change(interaction, question)
        else:
            await self._resolve(
                interaction, question, question.code if button.verb == "run" else None
            )

    def _answering(self, question: questions.Open) -> modals.Window:
        async def submitted(
            interaction: discord.Interaction[Any], text: str, _: tuple[discord.Attachment, ...]
        ) -> None:
            await self._resolve(interaction, question, text)

        return modals.Window(
            "Answer",
            "What the code asked for",
            submitted,
            self._interactor.failed,
            kind=modals.ANSWER,
            number=question.number,
            is_paragraph=False,
            is_required=False,
        )

    async def _change(
        self, interaction: discord.Interaction[Any], question: questions.Open
    ) -> None:
        async def submitted(
            interaction: discord.Interaction[Any], text: str, _: tuple[discord.Attachment, ...]
        ) -> None:
            await self._resolve(interaction, question, text)

        code = question.code or ""
        if len(code) > modals.MOST_CHARACTERS:
            await self._show_to_approve(interaction, question, code)
            return
        await interaction.response.send_modal(
            modals.Window(
                "Edit",
                "Code",
                submitted,
                self._interactor.failed,
                kind=modals.CHANGE,
                number=question.number,
                default=code,
            )
        )

    async def _show_to_approve(
        self, interaction: discord.Interaction[Any], question: questions.Open, code: str
    ) -> None:
        """Give all of long code as a file, to be run or refused once it was seen.

        An answer to an interaction may have files where the bot itself may attach none.
        """
        readable = sanitizing.revealed(code)
        warning = f"⚠️ {readable.warning}" if readable.warning else ""
        await self._interactor.tell(
            interaction,
            f"The code is too long to be edited here. All of it: {warning}".rstrip(),
            uploads=(handing.in_memory("to-approve.py", readable.text.encode()),),
            offered=tuple(
                sheets.Button(verb, question.number, question.owner) for verb in ("run", "refuse")
            ),
        )

    async def _resolve(
        self, interaction: discord.Interaction[Any], question: questions.Open, text: str | None
    ) -> None:
        if not await self._interactor.begins(interaction, is_silent=True):
            return
        if not question.resolve(text):
            await self._interactor.tell(interaction, _CLOSED)


def _is_code(part: histories.Past) -> bool:
    return isinstance(part, histories.PastCode)


def _joined(codes: Iterable[str]) -> str:
    return "\n\n".join(f"# %%\n{code}" for code in codes)
