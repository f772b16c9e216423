"""What buttons do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import discord

from interpreter_bot import errors
from interpreter_bot.platforms.discord import (
    escaping,
    interacting,
    modals,
    places,
    questions,
    sheets,
    uploads,
)
from interpreter_bot.sessions import histories

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
            if await self._interactor.admits(interaction):
                await self._press(interaction, button)
        except Exception as error:
            # The library would only log it, and leave the person without an answer.
            await self._interactor.failed(interaction, error)

    async def _press(self, interaction: discord.Interaction[Any], button: sheets.Button) -> None:
        place = places.of_interaction(interaction, button.owner)
        if button.verb in _QUESTIONS:
            await self._answer(interaction, button)
        elif button.verb == "stop":
            await self._stop(interaction, button, place)
        elif button.verb == "again":
            await self._interactor.again(interaction, place, button.number)
        elif button.verb == "notebook":
            await self.notebook(interaction, place)
        elif button.verb == "code":
            await self._show_code(interaction, place, button.number)

    async def _stop(
        self, interaction: discord.Interaction[Any], button: sheets.Button, place: places.Place
    ) -> None:
        is_moderator = interaction.permissions.manage_messages
        if interaction.user.id != button.owner and not is_moderator:
            await self._interactor.tell(interaction, _NOT_YOURS)
            return
        await interaction.response.defer()
        if not await self._talks.stop(place.key):
            await self._interactor.tell(interaction, "Nothing is running any more.")

    async def notebook(self, interaction: discord.Interaction[Any], place: places.Place) -> None:
        """Give somebody the conversation as a notebook."""
        await interaction.response.defer(ephemeral=True, thinking=True)
        data = await self._talks.notebook(place.key)
        if len(data) > place.file_bytes:
            raise errors.BotError("The notebook is larger than Discord lets me send.")
        await self._interactor.tell(
            interaction,
            "This conversation as a Jupyter notebook:",
            uploads=(_file("conversation.ipynb", data),),
        )

    async def _show_code(
        self, interaction: discord.Interaction[Any], place: places.Place, turn_id: int
    ) -> None:
        await interaction.response.defer(ephemeral=True, thinking=True)
        turn = next((t for t in await self._talks.history(place.key) if t.id == turn_id), None)
        codes = [part.code for part in turn.parts if _is_code(part)] if turn else []  # type: ignore[union-attr]
        if not codes:
            raise errors.BotError("That answer is too long ago.")
        shown = "\n".join(escaping.code(code, "py") for code in codes)
        if len(shown) <= sheets.MOST_CHARACTERS:
            await self._interactor.tell(interaction, shown)
            return
        data = _joined(codes).encode()
        told = "All code of that answer:"
        await self._interactor.tell(interaction, told, uploads=(_file("code.py", data),))

    async def _answer(self, interaction: discord.Interaction[Any], button: sheets.Button) -> None:
        question = self._interactor.requester.questions.find(button.number)
        if question is None or question.owner != button.owner or question.answer.done():
            await self._interactor.tell(interaction, _CLOSED)
        elif interaction.user.id != question.owner:
            await self._interactor.tell(interaction, _NOT_YOURS)
        elif button.verb == "answer":
            await interaction.response.send_modal(self._answering(question))
        elif button.verb == "change":
            await self._change(interaction, question)
        else:
            question.resolve(question.code if button.verb == "run" else None)
            await interaction.response.defer()

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
            raise errors.BotError("The code is too long to be edited here: run or refuse it.")
        await interaction.response.send_modal(
            modals.Window("Edit", "Code", submitted, self._interactor.failed, default=code)
        )

    async def _resolve(
        self, interaction: discord.Interaction[Any], question: questions.Open, text: str
    ) -> None:
        if not await self._interactor.admits(interaction):
            return
        if question.resolve(text):
            await interaction.response.defer()
        else:
            await self._interactor.tell(interaction, _CLOSED)


def _is_code(part: histories.Past) -> bool:
    return isinstance(part, histories.PastCode)


def _joined(codes: Iterable[str]) -> str:
    return "\n\n".join(f"# %%\n{code}" for code in codes)


def _file(name: str, data: bytes) -> sheets.Upload:
    return sheets.Upload(name, 0, name, len(data), uploads.Memory(data))
