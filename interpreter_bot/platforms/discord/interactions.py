"""Interactions: permission, acknowledgement in time, claims, and the requests they become."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import cachetools
import discord

from interpreter_bot import errors, settings
from interpreter_bot.platforms.chat import claims, in_flight, policies, transport
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    file_transfers,
    markdown,
    permissions,
    persistent_buttons,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import command_words, file_words, run_words

_log = logging.getLogger(__name__)

_ANSWERED_CODES: Final = frozenset({api_errors.ALREADY_ANSWERED, api_errors.UNKNOWN_INTERACTION})
_ACKNOWLEDGED: Final = "acknowledged"
"""Key of `Interaction.extras`: how the interaction was acknowledged, "thinking" or "silently"."""
_MAX_PAYLOADS: Final = 200
_MAX_MODALS: Final = 200


@dataclasses.dataclass(frozen=True, slots=True)
class ModalContext:
    """Files and quoted messages of a request that is written in a modal; its id has no room."""

    attachments: tuple[discord.Attachment, ...] = ()
    recent: tuple[requests.RecentMessage, ...] = ()


class InteractionHandler:
    """Handles interactions.

    Attributes:
        service: the conversations.
        network: sends messages.
        in_flight: runs requests.
        config: the operator's settings.
        is_leaving: the bot ends, and refuses new interactions.
        modal_contexts: of modals that this process opened, by their ids.
    """

    def __init__(
        self,
        network: discord_transport.DiscordTransport,
        service: session_service.SessionService,
        config: settings.Discord,
        requests_in_flight: in_flight.RequestsInFlight,
        ordered_claims: claims.OrderedClaims,
        files: file_transfers.Attachments,
    ) -> None:
        self._claims = ordered_claims
        self._payloads = cachetools.LRUCache[int, Mapping[str, Any]](_MAX_PAYLOADS)
        self._reclaimed_ids: set[int] = set()
        self._files = files
        self._memberships = permissions.Memberships(network.client, config, network.limits)
        self.service = service
        self.network = network
        self.in_flight = requests_in_flight
        self.config = config
        self.is_leaving = False
        self.modal_contexts = cachetools.LRUCache[str, ModalContext](_MAX_MODALS)

    async def check_permissions(self, interaction: discord.Interaction[Any]) -> bool:
        """Check the permissions that are known without fetching; refuse if they are missing.

        This suffices to open a modal, as its submission is checked again.
        """
        refusal = command_words.RESTARTING if self.is_leaving else ""
        if not self._memberships.must_fetch(interaction.user, interaction.guild_id):
            refusal = refusal or self._refusal(interaction)
        return not await self._send_refusal(interaction, refusal)

    async def acknowledge_and_claim(
        self,
        interaction: discord.Interaction[Any],
        *,
        is_public: bool = False,
        is_silent: bool = False,
    ) -> bool:
        """Acknowledge and claim an interaction; return whether this bot is to handle it.

        Discord waits three seconds for the acknowledgement, so it comes before the database is
        used. If several bots acknowledge, the claim decides.

        Args:
            is_public: everybody in the channel sees the answer.
            is_silent: there is no answer unless something fails.
        """
        if not await self.check_permissions(interaction):
            return False
        await self._acknowledge(interaction, is_public=is_public, is_silent=is_silent)
        if not await self.service.events.claim(
            channels_and_threads.PLATFORM, _event_id(interaction)
        ):
            return False
        return not await self._send_refusal(interaction, await self._fetch_refusal(interaction))

    async def start(
        self,
        interaction: discord.Interaction[Any],
        prepare: Callable[[], Awaitable[claims.StartRequest | None]],
    ) -> None:
        """Acknowledge an interaction, and run it as a request that everybody sees.

        If this bot dies before the request begins, the next bot runs it.
        """
        is_again = interaction.id in self._reclaimed_ids

        async def prepare_if_permitted() -> claims.StartRequest | None:
            try:
                if await self._send_refusal(interaction, await self._fetch_refusal(interaction)):
                    return None
                return await prepare()
            except Exception as error:
                await self.report_error(interaction, error)
                return None

        if is_again:
            self._reclaimed_ids.discard(interaction.id)
            interaction.extras[_ACKNOWLEDGED] = "thinking"
        elif await self.check_permissions(interaction):
            await self._acknowledge(interaction, is_public=True, is_silent=False)
        else:
            return
        payload = self._payloads.pop(interaction.id, None)
        envelope = claims.Envelope(
            event_id=_event_id(interaction),
            key=channels_and_threads.place_at_interaction(interaction).key,
            request_id=str(interaction.id),
            content=payload and {"payload": payload},
            is_secret=True,
        )
        await self._claims.handle(envelope, prepare_if_permitted, is_claimed=is_again)

    def receive(self, payload: Mapping[str, Any], *, is_again: bool = False) -> None:
        """Keep the payload of an interaction until that is claimed.

        Args:
            is_again: a former bot acknowledged and claimed the interaction.
        """
        interaction_id = int(payload["id"])
        if is_again:
            self._reclaimed_ids.add(interaction_id)
        else:
            self._payloads[interaction_id] = payload

    async def _send_refusal(self, interaction: discord.Interaction[Any], refusal: str) -> bool:
        if refusal:
            _log.info("an interaction was refused: %s", refusal)
            await self.reply(interaction, refusal)
        return bool(refusal)

    async def _acknowledge(
        self, interaction: discord.Interaction[Any], *, is_public: bool, is_silent: bool
    ) -> None:
        """Acknowledge the interaction; a second time if the connection was cut."""
        try:
            await _defer(interaction, is_public=is_public, is_silent=is_silent)
        except api_errors.CONNECTION as error:
            _log.info("an acknowledgement may not have arrived", exc_info=error)
            await _defer(interaction, is_public=is_public, is_silent=is_silent)
        interaction.extras[_ACKNOWLEDGED] = "silently" if is_silent else "thinking"

    def _refusal(
        self,
        interaction: discord.Interaction[Any],
        membership: permissions.Membership | None = None,
    ) -> str:
        """Return why a person may not use the bot there, without fetching; empty if they may."""
        requester = permissions.make_requester(
            interaction.user,
            interaction.guild_id,
            interaction.channel or discord.Object(interaction.channel_id or 0),
            membership,
            is_bot_there=channels_and_threads.is_bot_at(interaction),
        )
        return str(policies.refusal(requester, permissions.rules(self.config)) or "")

    async def _fetch_refusal(self, interaction: discord.Interaction[Any]) -> str:
        """Return why a person may not use the bot there, after fetching their membership."""
        membership = await self._memberships.find_membership(interaction.user, interaction.guild)
        return self._refusal(interaction, membership)

    def may_complete(self, interaction: discord.Interaction[Any]) -> bool:
        """Return whether a person may see completions."""
        return not self._refusal(interaction)

    async def reply(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        uploads: tuple[transport.Upload, ...] = (),
        shown_buttons: tuple[transport.Button, ...] = (),
    ) -> None:
        """Reply; only to the person, unless the acknowledgement was public."""
        no_mentions = discord.AllowedMentions.none()
        if interaction.extras.get(_ACKNOWLEDGED) == "thinking":
            await interaction.edit_original_response(
                content=text or None,
                attachments=discord_transport.open_files(uploads),
                view=persistent_buttons.view(shown_buttons),
                allowed_mentions=no_mentions,
            )
            return
        fields: dict[str, Any] = {
            "files": discord_transport.open_files(uploads),
            "view": persistent_buttons.view(shown_buttons) or discord.utils.MISSING,
            "ephemeral": True,
            "allowed_mentions": no_mentions,
            "suppress_embeds": True,
        }
        if interaction.extras.get(_ACKNOWLEDGED) or interaction.response.is_done():
            await interaction.followup.send(text, **fields)
        else:
            await interaction.response.send_message(text, **fields)

    async def run_request(
        self,
        interaction: discord.Interaction[Any],
        text: str,
        *,
        attachments: Sequence[file_transfers.Attached] = (),
        is_code: bool = False,
        recent: tuple[requests.RecentMessage, ...] = (),
    ) -> None:
        """Run a request and show its answer to everybody in the channel, if permitted."""
        files = self._files.make_attachments(attachments)
        prepare = functools.partial(
            self.open_request, interaction, text, is_code=is_code, attachments=files, recent=recent
        )
        await self.start(interaction, prepare)

    async def rerun(self, interaction: discord.Interaction[Any], turn_id: int) -> None:
        """Run the request of an earlier turn again, if permitted."""

        async def prepare() -> claims.StartRequest:
            key = channels_and_threads.place_at_interaction(interaction).key
            past_turns = await self.service.queries.history(key)
            past_turn = next((turn for turn in past_turns if turn.record.id == turn_id), None)
            if past_turn is None:
                raise errors.BotError(command_words.ANSWER_TOO_OLD)
            return await self.open_request(
                interaction,
                past_turn.record.request,
                is_code=past_turn.is_code,
                files=past_turn.record.attachments,
            )

        await self.start(interaction, prepare)

    async def open_request(
        self, interaction: discord.Interaction[Any], text: str, *, is_code: bool, **fields: Any
    ) -> claims.StartRequest:
        """Open the request of an interaction; return the function that starts it."""
        place = channels_and_threads.place_at_interaction(interaction)
        person = channels_and_threads.person_of(interaction.user)
        author_preferences = await self.in_flight.find_preferences(place.key, person.id)
        request = requests.Request(
            key=place.key,
            person=person,
            text=text,
            is_code=is_code,
            id=str(interaction.id),
            **fields,
        )
        handle = discord_transport.LiveInteraction(interaction)
        location = channels_and_threads.location(place, handle=handle)
        entry = self.in_flight.open_entry(request.id, person.id, location)
        shows_code = is_code or author_preferences.show_code
        return functools.partial(self.in_flight.answer, entry, request, shows_code=shows_code)

    async def report_error(self, interaction: discord.Interaction[Any], error: Exception) -> None:
        """Translate an error for the person who asked, and log it."""
        cause = getattr(error, "original", error)
        if isinstance(cause, errors.BotError):
            text = f"⚠️ {markdown.escape(str(cause))}"
        elif api_errors.code_of(cause) in api_errors.FILES_REFUSED:
            _log.info("Discord refused a file", exc_info=cause)
            text = file_words.TOO_LARGE_FOR_DISCORD
        elif api_errors.code_of(cause) in _ANSWERED_CODES:
            _log.warning("an interaction was answered too late, or by another bot")
            return
        else:
            _log.error("an interaction ended in an error", exc_info=cause)
            text = run_words.BOT_FAULT
        try:
            await self.reply(interaction, text)
        except api_errors.ANY as reply_error:
            _log.info("an error could not be reported", exc_info=reply_error)


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
