"""What `/interpreter` does: everything but running code."""

from __future__ import annotations

from typing import Any, Final

import discord

from interpreter_bot import errors, values
from interpreter_bot.platforms.discord import (
    escaping,
    handing,
    informing,
    interacting,
    places,
    preferences,
    sheets,
)

_Interaction = discord.Interaction[Any]
_NO_CONTENT: Final = (
    "🔹 This bot was not given the message-content intent: in channels I read only messages that "
    "mention me or reply to me, commands, and what you choose from Apps."
)


class Attendant:
    """Attends to conversations."""

    def __init__(
        self,
        client: discord.Client,
        interactor: interacting.Interactor,
    ) -> None:
        self._client = client
        self._interactor = interactor
        self._talks = interactor.talks

    async def reset(self, interaction: _Interaction, *, files: bool) -> None:
        """Begin a conversation anew. All who are there learn of it."""
        place = places.of_interaction(interaction)
        await self._talks.reset(place.key, files=files)
        told = "Variables and transcript are forgotten"
        told += ", and the files are deleted." if files else "; the files in /mnt/data are kept."
        await self._interactor.tell(interaction, f"🧹 {told}")

    async def files(self, interaction: _Interaction, name: str) -> None:
        """List files, or hand one out."""
        place = places.of_interaction(interaction)
        if not name:
            listed = informing.files(await self._talks.files(place.key))
            await self._interactor.tell(interaction, _cut(listed))
            return
        await handing.hand_out(self._interactor, interaction, place, name)

    async def file_names(self, interaction: _Interaction) -> tuple[str, ...]:
        """Return the names of all files."""
        place = places.of_interaction(interaction)
        return tuple(info.name for info in await self._talks.files(place.key))

    async def limits(self, interaction: _Interaction) -> None:
        """Say what code may use."""
        told = informing.limits(
            self._talks.limits,
            is_sandboxed=self._talks.is_sandboxed,
            file_bytes=places.of_interaction(interaction).file_bytes,
        )
        await self._interactor.tell(interaction, told)

    async def notebook(self, interaction: _Interaction) -> None:
        """Give the conversation as a notebook."""
        await handing.notebook(self._interactor, interaction, places.of_interaction(interaction))

    async def usage(self, interaction: _Interaction) -> None:
        """Say what was used."""
        place, person = places.of_interaction(interaction), places.person(interaction.user)
        told = informing.usage(await self._talks.usage(place.key, person))
        await self._interactor.tell(interaction, told)

    async def help(self, interaction: _Interaction) -> None:
        """Say what we can do, and what not."""
        lines = [informing.HELP]
        if not self._client.intents.message_content:
            lines.append(escaping.small(_NO_CONTENT))
        if self._talks.model_notice:
            lines.append(escaping.small(f"🔹 {escaping.plain(self._talks.model_notice)}"))
        await self._interactor.tell(interaction, "\n".join(lines))

    async def model(self, interaction: _Interaction, name: str) -> None:
        """Show or choose the model."""
        place = places.of_interaction(interaction)
        if not name:
            current = await self._talks.model(place.key)
            told = f"This conversation asks {escaping.line(current)}." if current else ""
            if len(self._talks.models) > 1:
                told += f" There are {', '.join(map(escaping.line, self._talks.models))}."
            told = told or f"There is no model. {escaping.plain(self._talks.model_notice)}"
            await self._interactor.tell(interaction, _cut(told))
            return
        await self._talks.choose_model(place.key, None if name == "default" else name)
        told = f"This conversation asks {escaping.line(name)} from now on."
        await self._interactor.tell(interaction, told)

    async def settings(self, interaction: _Interaction, name: str, value: str, scope: str) -> None:
        """Show what holds, or change it."""
        place = places.of_interaction(interaction)
        if not name:
            await self._show_settings(interaction, place)
            return
        chosen = preferences.parse(name, value, self._talks.models)
        await self._talks.choose(_scope(interaction, place, scope), name, chosen)
        words = {"me": "for you", "channel": "in this channel", "server": "on this server"}
        told = "as by default" if chosen is None else escaping.line(value.strip())
        told = f"{escaping.line(name)} is {told} from now on, {words[scope]}."
        if name == preferences.APPROVAL:
            holds = await self._talks.approval(place.scope(str(interaction.user.id)))
            told += f" With what others chose, {escaping.line(holds)} holds for you here."
        await self._interactor.tell(interaction, told)

    async def _show_settings(self, interaction: _Interaction, place: places.Place) -> None:
        person = places.person(interaction.user)
        holds = await self._interactor.requester.chosen_by(place, person)
        lines = ["**What holds for you here**"]
        for name in preferences.NAMES:
            value: object = getattr(holds, name, "")
            if name == preferences.APPROVAL:
                value = await self._talks.approval(place.scope(person.id))
            shown = {True: "on", False: "off", "": "default"}.get(value, value)
            lines.append(f"• {escaping.line(name)}: {shown} ({preferences.ABOUT[name]})")
        await self._interactor.tell(interaction, "\n".join(lines))


def _scope(interaction: _Interaction, place: places.Place, scope: str) -> values.Scope:
    """Return where a choice is to hold, if whoever chooses may decide that.

    Raises:
        BotError: they may not, or there is no such place.
    """
    if scope == "me":
        return values.Scope(places.PLATFORM, person=str(interaction.user.id))
    if place.guild_id is None or not place.is_member:
        raise errors.BotError("Here you can choose for yourself only.")
    held = interaction.permissions
    if scope == "channel":
        if not (held.manage_channels or held.manage_guild):
            raise errors.BotError("Only who manages the channel can choose for it.")
        return values.Scope(places.PLATFORM, place.key.workspace, place.key.channel)
    if not held.manage_guild:
        raise errors.BotError("Only who manages the server can choose for it.")
    return values.Scope(places.PLATFORM, place.key.workspace)


def _cut(text: str) -> str:
    return text if len(text) <= sheets.MOST_CHARACTERS else f"{text[: sheets.MOST_CHARACTERS]}…"
