"""Interactions: who may, answered in time, and once; and requests made of them."""

from __future__ import annotations

import logging
from typing import Any, Final

import discord

from interpreter_bot import errors, settings
from interpreter_bot.platforms.discord import (
    attaching,
    desks,
    escaping,
    faults,
    permits,
    places,
    requesting,
    sheets,
)
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_FAILED: Final = "Something went wrong; what, is in the bot's log."
_LEAVING: Final = "I am about to be restarted. Please try again in a moment."
_ANSWERED: Final = frozenset({faults.ALREADY_ANSWERED, faults.UNKNOWN_INTERACTION})


class Interactor:
    """Answers interactions.

    Attributes:
        talks: the conversations.
        requester: carries requests out.
        options: what the operator set.
        is_leaving: nothing more is to be taken.
    """

    def __init__(
        self,
        client: discord.Client,
        talks: conversations.Conversations,
        allowed: settings.Discord,
        requester: requesting.Requester,
        files: attaching.Files,
    ) -> None:
        self._client = client
        self._files = files
        self.talks = talks
        self.requester = requester
        self.options = allowed
        self.is_leaving = False

    async def admits(self, interaction: discord.Interaction[Any]) -> bool:
        """Say whether an interaction is to be carried out: by us, now, and for them.

        Who may not is told so; an interaction that was heard before is passed over.
        """
        if not await self.talks.claim(places.PLATFORM, f"interaction {interaction.id}"):
            return False
        refusal = permits.refusal(_asker(interaction), self.options)
        if self.is_leaving:
            refusal = _LEAVING
        if refusal:
            _log.info("an interaction was refused: %s", refusal)
            await self.tell(interaction, refusal)
        return not refusal

    def may_complete(self, interaction: discord.Interaction[Any]) -> bool:
        """Say whether somebody may see what could be completed."""
        return not permits.refusal(_asker(interaction), self.options)

    async def tell(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        uploads: tuple[sheets.Upload, ...] = (),
    ) -> None:
        """Answer with something that only who asked can see."""
        fields: dict[str, Any] = {
            "files": desks.files(uploads),
            "ephemeral": True,
            "allowed_mentions": discord.AllowedMentions.none(),
            "suppress_embeds": True,
        }
        if interaction.response.is_done():
            await interaction.followup.send(text, **fields)
        else:
            await interaction.response.send_message(text, **fields)

    async def request(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        attachments: tuple[discord.Attachment, ...] = (),
        is_code: bool = False,
        context: str = "",
    ) -> None:
        """Carry a request out and show its answer to all who are there."""
        await interaction.response.defer(thinking=True)
        place = places.of_interaction(interaction)
        person = places.person(interaction.user)
        chosen = await self.requester.chosen_by(place, person)
        request = requesting.request_in(
            place,
            person,
            text,
            chosen,
            attachments=self._files.of(attachments),
            is_code=is_code,
            id=str(interaction.id),
            context=context,
        )
        desk = desks.InteractionDesk(self._client, interaction, place)
        run = requesting.Run(request, place, desk)
        work = self.requester.carry_out(run, chosen, shows_code=is_code)
        self.requester.spawn(work, f"interaction {interaction.id}")

    async def again(
        self, interaction: discord.Interaction[Any], place: places.Place, turn_id: int
    ) -> None:
        """Carry out the request of an earlier turn anew."""
        await interaction.response.defer(thinking=True)
        past = next((t for t in await self.talks.history(place.key) if t.id == turn_id), None)
        if past is None:
            await interaction.followup.send("That answer is too long ago.", ephemeral=True)
            return
        person = places.person(interaction.user)
        chosen = await self.requester.chosen_by(place, person)
        request = requesting.request_in(
            place,
            person,
            past.request,
            chosen,
            files=past.attachments,
            is_code=past.is_code,
            id=str(interaction.id),
        )
        desk = desks.InteractionDesk(self._client, interaction, place)
        run = requesting.Run(request, place, desk)
        work = self.requester.carry_out(run, chosen, shows_code=past.is_code)
        self.requester.spawn(work, f"interaction {interaction.id}")

    async def failed(self, interaction: discord.Interaction[Any], error: Exception) -> None:
        """Translate what went wrong for who asked, and for the log."""
        cause = getattr(error, "original", error)
        if isinstance(cause, errors.BotError):
            text = f"⚠️ {escaping.plain(str(cause))}"
        elif faults.code_of(cause) in _ANSWERED:
            _log.warning("an interaction was answered too late, or by somebody else")
            return
        else:
            _log.error("an interaction ended in an error", exc_info=cause)
            text = _FAILED
        try:
            await self.tell(interaction, text)
        except faults.ANY as told:
            _log.info("that could not be told", exc_info=told)


def _asker(interaction: discord.Interaction[Any]) -> permits.Asker:
    user, channel = interaction.user, interaction.channel
    around = [interaction.channel_id or 0]
    if isinstance(channel, discord.Thread):
        around.append(channel.parent_id)
    roles = [role.id for role in user.roles] if isinstance(user, discord.Member) else []
    return permits.Asker(
        user_id=user.id, guild_id=interaction.guild_id, channel_ids=around, role_ids=roles
    )
