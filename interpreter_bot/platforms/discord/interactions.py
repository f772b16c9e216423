"""Interactions: permission, acknowledgement in time, and once; and requests made of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import errors, settings
from interpreter_bot.platforms.chat import policies, transport
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    file_transfers,
    markdown,
    permissions,
    persistent_buttons,
    requests_in_flight,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import command_words, file_words, run_words

_log = logging.getLogger(__name__)

_ANSWERED: Final = frozenset({api_errors.ALREADY_ANSWERED, api_errors.UNKNOWN_INTERACTION})
_ACKNOWLEDGED: Final = "acknowledged"
_AWAITED: Final = "awaited"
_MAX_PAYLOADS: Final = 200


class InteractionHandler:
    """Handles interactions.

    Attributes:
        service: the conversations.
        in_flight: runs requests.
        config: the operator's settings.
        is_leaving: no new interaction is handled.
    """

    def __init__(
        self,
        client: discord.Client,
        service: session_service.SessionService,
        config: settings.Discord,
        in_flight: requests_in_flight.RequestsInFlight,
        files: file_transfers.Attachments,
    ) -> None:
        self._client = client
        self._payloads = cachetools.LRUCache[int, Mapping[str, Any]](_MAX_PAYLOADS)
        self._taken_again: set[int] = set()
        self._files = files
        self._members = permissions.Memberships(client, config, in_flight.limits)
        self.service = service
        self.in_flight = in_flight
        self.config = config
        self.is_leaving = False

    async def admits(self, interaction: discord.Interaction[Any]) -> bool:
        """Check the permissions known at once; a person without is told so.

        Enough to open a modal: what is submitted with it is checked again.
        """
        refusal = command_words.RESTARTING if self.is_leaving else ""
        if not self._members.is_unknown(interaction.user, interaction.guild_id):
            refusal = refusal or self._refusal(interaction)
        return not await self._refuses(interaction, refusal)

    async def begins(
        self,
        interaction: discord.Interaction[Any],
        *,
        is_public: bool = False,
        is_silent: bool = False,
        is_request: bool = False,
    ) -> bool:
        """Acknowledge an interaction; say whether it is to be handled: permitted, now, and by this
        bot.

        Discord waits three seconds for a first sign, so it is given before anything is asked of
        a database. Where several bots give one, the claim decides.

        Args:
            interaction: what the person did.
            is_public: everybody in the channel sees the answer.
            is_silent: there is none, if all goes well.
            is_request: it becomes a request, which everybody sees; only that is taken again where
                this bot dies before it has begun, for anything else may have been done.
        """
        is_again = interaction.id in self._taken_again
        if is_again:
            self._taken_again.discard(interaction.id)
            interaction.extras |= {_ACKNOWLEDGED: "thinking", _AWAITED: True}
        if not await self.admits(interaction):
            return False
        if not is_again:
            is_public = is_public or is_request
            await self._acknowledge(interaction, is_public=is_public, is_silent=is_silent)
            if not await self._claim(interaction, is_request=is_request):
                return False
        standing = await self._members.standing(interaction.user, interaction.guild)
        refusal = self._refusal(interaction, standing)
        return not await self._refuses(interaction, refusal)

    async def _claim(self, interaction: discord.Interaction[Any], *, is_request: bool) -> bool:
        """Claim an interaction; say whether no process had."""
        payload = self._payloads.pop(interaction.id, None)
        claimed = channels_and_threads.PLATFORM, _event_id(interaction)
        if not is_request:
            return await self.service.events.claim(*claimed)
        interaction.extras[_AWAITED] = await self.service.events.claim(
            *claimed,
            key=channels_and_threads.of_interaction(interaction).key,
            request_id=str(interaction.id),
            content=payload and {"payload": payload},
            is_secret=True,
        )
        return bool(interaction.extras[_AWAITED])

    def receive(self, payload: Mapping[str, Any], *, is_again: bool = False) -> None:
        """Note what Discord says of an interaction, until that is claimed.

        Args:
            payload: as it came.
            is_again: it was acknowledged and claimed by a bot that is gone, and is ours now.
        """
        number = int(payload["id"])
        if is_again:
            self._taken_again.add(number)
        else:
            self._payloads[number] = payload

    async def _refuses(self, interaction: discord.Interaction[Any], refusal: str) -> bool:
        if refusal:
            _log.info("an interaction was refused: %s", refusal)
            await self.tell(interaction, refusal)
        return bool(refusal)

    async def _acknowledge(
        self, interaction: discord.Interaction[Any], *, is_public: bool, is_silent: bool
    ) -> None:
        """Acknowledge the interaction; a second time if the connection was cut."""
        try:
            await _defer(interaction, is_public=is_public, is_silent=is_silent)
        except api_errors.CONNECTION as error:
            _log.info("a first sign may not have arrived", exc_info=error)
            await _defer(interaction, is_public=is_public, is_silent=is_silent)
        interaction.extras[_ACKNOWLEDGED] = "silently" if is_silent else "thinking"

    def _refusal(
        self,
        interaction: discord.Interaction[Any],
        standing: permissions.Membership | None = None,
    ) -> str:
        """Return why a person may not use the bot there, as far as is known; empty if they may."""
        requester = permissions.requester(
            interaction.user,
            interaction.guild_id,
            interaction.channel or discord.Object(interaction.channel_id or 0),
            standing,
            is_bot_there=channels_and_threads.is_bot_at(interaction),
        )
        return str(policies.refusal(requester, permissions.rules(self.config)) or "")

    def may_complete(self, interaction: discord.Interaction[Any]) -> bool:
        """Return whether a person may see autocompletions."""
        return not self._refusal(interaction)

    async def tell(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        uploads: tuple[transport.Upload, ...] = (),
        offered: tuple[transport.Button, ...] = (),
    ) -> None:
        """Answer; unless a public answer was promised, only the person who asked sees it."""
        if interaction.extras.pop(_AWAITED, False):
            # Whether or not this arrives: nothing else is said.
            async with self.service.events.settled(
                channels_and_threads.PLATFORM, _event_id(interaction)
            ):
                await self.tell(interaction, text, uploads=uploads, offered=offered)
            return
        nobody = discord.AllowedMentions.none()
        if interaction.extras.get(_ACKNOWLEDGED) == "thinking":
            await interaction.edit_original_response(
                content=text or None,
                attachments=discord_transport.files(uploads),
                view=persistent_buttons.view(offered),
                allowed_mentions=nobody,
            )
            return
        fields: dict[str, Any] = {
            "files": discord_transport.files(uploads),
            "view": persistent_buttons.view(offered) or discord.utils.MISSING,
            "ephemeral": True,
            "allowed_mentions": nobody,
            "suppress_embeds": True,
        }
        if interaction.extras.get(_ACKNOWLEDGED) or interaction.response.is_done():
            await interaction.followup.send(text, **fields)
        else:
            await interaction.response.send_message(text, **fields)

    async def request(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        attachments: Sequence[file_transfers.Attached] = (),
        is_code: bool = False,
        recent: tuple[requests.RecentMessage, ...] = (),
    ) -> None:
        """Run a request and show its answer to everybody in the channel, if permitted."""
        if await self.begins(interaction, is_request=True):
            await self.carry_out(
                interaction, text, attachments=attachments, is_code=is_code, recent=recent
            )

    async def carry_out(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        attachments: Sequence[file_transfers.Attached] = (),
        is_code: bool = False,
        recent: tuple[requests.RecentMessage, ...] = (),
    ) -> None:
        """Do so for an interaction that has begun already, publicly."""
        place = channels_and_threads.of_interaction(interaction)
        given = {"attachments": self._files.of(attachments), "recent": recent}
        await self._start(interaction, place, text, is_code=is_code, **given)

    async def again(
        self, interaction: discord.Interaction[Any], place: channels_and_threads.Place, turn_id: int
    ) -> None:
        """Run the request of an earlier turn again, if permitted."""
        if not await self.begins(interaction, is_request=True):
            return
        past = next(
            (t for t in await self.service.queries.history(place.key) if t.id == turn_id), None
        )
        if past is None:
            await self.tell(interaction, command_words.ANSWER_TOO_OLD)
            return
        await self._start(
            interaction, place, past.request, is_code=past.is_code, files=past.attachments
        )

    async def _start(
        self,
        interaction: discord.Interaction[Any],
        place: channels_and_threads.Place,
        text: str,
        *,
        is_code: bool,
        **given: Any,
    ) -> None:
        """Let the request of an interaction run; after it nobody waits for an answer."""
        person = channels_and_threads.person(interaction.user)
        chosen = await self.in_flight.chosen_by(place, person)
        request = requests_in_flight.request_in(
            place, person, text, chosen, is_code=is_code, id=str(interaction.id), **given
        )
        handle = discord_transport.LiveInteraction(interaction)
        at = channels_and_threads.location(place, handle=handle)
        run = requests_in_flight.InFlight(request, place, at)

        async def settled() -> None:
            claimed = channels_and_threads.PLATFORM, _event_id(interaction)
            async with self.service.events.settled(*claimed):
                await self.in_flight.carry_out(run, chosen, shows_code=is_code)

        interaction.extras.pop(_AWAITED, None)
        self.in_flight.spawn(settled(), f"interaction {interaction.id}")

    async def failed(self, interaction: discord.Interaction[Any], error: Exception) -> None:
        """Translate an error for the person who asked, and log it."""
        cause = getattr(error, "original", error)
        if isinstance(cause, errors.BotError):
            text = f"⚠️ {markdown.escape(str(cause))}"
        elif api_errors.code_of(cause) in api_errors.FILES_REFUSED:
            _log.info("Discord refused a file", exc_info=cause)
            text = file_words.REFUSED_BY_DISCORD
        elif api_errors.code_of(cause) in _ANSWERED:
            _log.warning("an interaction was answered too late, or by somebody else")
            return
        else:
            _log.error("an interaction ended in an error", exc_info=cause)
            text = run_words.FAULT
        try:
            await self.tell(interaction, text)
        except api_errors.ANY as told:
            _log.info("that could not be told", exc_info=told)


def _event_id(interaction: discord.Interaction[Any]) -> str:
    return f"interaction {interaction.id}"


async def _defer(
    interaction: discord.Interaction[Any], *, is_public: bool, is_silent: bool
) -> None:
    try:
        await interaction.response.defer(ephemeral=not is_public, thinking=not is_silent)
    except discord.HTTPException as error:
        # Acknowledged by another bot, or by this one before the connection was cut.
        if error.code != api_errors.ALREADY_ANSWERED:
            raise
