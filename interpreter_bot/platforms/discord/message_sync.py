"""Reconcile an answer's Discord messages with their wanted state; rate-limited, retried.

Callers give the complete wanted state; only differences are sent. So nothing is lost by being
skipped, and a request that failed is simply made again, under the same nonce.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeAlias

import discord

from interpreter_bot import events
from interpreter_bot.platforms.discord import (
    api_errors,
    markdown,
    message_layout,
    message_targets,
    persistent_buttons,
    rate_limits,
    turn_rendering,
)
from interpreter_bot.wording import discord_words, file_words

_log = logging.getLogger(__name__)

Draw: TypeAlias = Callable[[], tuple[message_layout.MessageDraft, ...]]
Refused: TypeAlias = Callable[[tuple[message_layout.Upload, ...]], Awaitable[None]]
"""Called with files that Discord refuses as they are; others must be drawn from then on."""

_TYPING_SECONDS: Final = 8.0
_MOST_TRIES: Final = 8
_LONGEST_WAIT_SECONDS: Final = 20.0
# Discord knows a nonce for "the past few minutes".
NONCE_SECONDS: Final = 60.0
# A message to an archived thread opens it again, unless it is locked.
_CLOSED: Final = api_errors.CANNOT_DIRECT | {
    *(
        api_errors.UNKNOWN_CHANNEL,
        api_errors.NO_ACCESS,
        api_errors.NO_PERMISSION,
        api_errors.ARCHIVED,
    )
}
_TOO_LARGE: Final = 413
_MAX_NAMES: Final = 3
_MAX_CONTENT: Final = 1950
_RUN: Final = frozenset({"run", events.FOR_SESSION})
_AS_NEW: Final = frozenset({api_errors.TOO_MANY_EDITS, api_errors.ARCHIVED})


@dataclasses.dataclass(slots=True)
class _Slot:
    """One message of the answer.

    Attributes:
        draft: how it stands; while it does not, how it was to be posted first. Discord answers a
            second request under the same nonce with what the first one posted.
        tried: when that was requested first, in wall-clock time.
        is_refused: it does not stand, and is to be posted otherwise.
    """

    draft: message_layout.MessageDraft
    posted: message_targets.Posted | None = None
    nonce: str = dataclasses.field(default_factory=lambda: secrets.token_hex(12))
    tried: float | None = None
    is_refused: bool = False
    is_gone: bool = False


class _FilesRefusedError(Exception):
    """Discord refuses these files as they are."""

    def __init__(self, uploads: tuple[message_layout.Upload, ...]) -> None:
        super().__init__()
        self.uploads = uploads


class MessageSync:
    """Keeps the messages of one answer in sync."""

    def __init__(
        self,
        target: message_targets.MessageTarget,
        draw: Draw,
        draw_in_order: Draw,
        refused: Refused,
        *,
        limits: rate_limits.RateLimits,
        pace_seconds: float,
        instead_of: MessageSync | None = None,
        adopts: int = 0,
    ) -> None:
        """Prepare an answer.

        Args:
            target: where it goes.
            draw: returns its wanted state.
            draw_in_order: returns it as a bot showed it that had not come to the end.
            refused: called with files that Discord refuses.
            limits: of the client.
            pace_seconds: between two rounds, while it changes.
            instead_of: an earlier answer in the same place, whose messages this one takes over.
            adopts: the request for which a bot that is gone may have posted messages.
        """
        self._target = target
        self._draw = draw
        self._draw_in_order = draw_in_order
        self._refused = refused
        self._limits = limits
        self._pace_seconds = pace_seconds
        self._slots: list[_Slot] = instead_of._slots if instead_of is not None else []
        self._adopts = adopts
        self._has_begun = asyncio.Event()
        self._has_changed = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._is_last = False
        self._is_told_of_files = False
        self.is_refused = False
        """Nothing may be shown there, and nothing was."""
        self.is_lost = asyncio.Event()
        """Set when nothing can be shown there any more."""

    def begin(self) -> None:
        """Signal that the answer is known as far as the bot before this one showed it."""
        self._has_begun.set()

    async def _adopt(self, number: int) -> None:
        """Go on in the messages that a bot which is gone has posted for a request.

        The last one has the request's Stop button. Those before it begin as ours do.
        """
        try:
            standing = await self._target.standing(number)
        except api_errors.ANY as error:
            _log.info("the messages of an answer could not be looked up", exc_info=error)
            return
        stops = {
            message.id: [*persistent_buttons.numbers(message, ("stop",))] for message in standing
        }
        last = next((message for message in standing if number in stops[message.id]), None)
        if last is None:
            return
        drafts = self._draw_in_order()
        for message in standing:
            place = len(self._slots)
            if message.id == last.id:
                draft = drafts[place] if place < len(drafts) else message_layout.MessageDraft("")
                self._slots.append(_adopted(message, draft))
                return
            is_ours = place < len(drafts) and _begins(drafts[place], message)
            if is_ours and not stops[message.id]:
                self._slots.append(_adopted(message, drafts[place]))

    def change(self, *, is_urgent: bool = False) -> None:
        """Signal that the wanted state has changed."""
        self._has_changed.set()
        if is_urgent:
            self._is_urgent.set()

    def finish(self) -> None:
        """Signal the last change."""
        self._is_last = True
        self.change(is_urgent=True)

    async def run(self) -> None:
        """Sync until the answer is finished and stands."""
        await self._has_begun.wait()
        if self._adopts:
            await self._adopt(self._adopts)
        failures = 0
        with self._typing():
            while not self.is_lost.is_set():
                await self._has_changed.wait()
                self._has_changed.clear()
                self._is_urgent.clear()
                is_last = self._is_last
                started = time.monotonic()
                is_done = await self._round(patient=is_last)
                if is_last:
                    if not is_done:
                        _log.error("an answer could not be shown completely")
                    return
                failures = 0 if is_done else failures + 1
                if failures:
                    self._has_changed.set()
                # Discord shuts out bots that insist while it refuses.
                rest = self._pace_seconds * 2**failures - (time.monotonic() - started)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(max(rest, 0), _LONGEST_WAIT_SECONDS)):
                        await self._is_urgent.wait()

    @contextlib.contextmanager
    def _typing(self) -> Iterator[None]:
        """Show the typing indicator inside the context.

        Its last request may end later, as the library waits for the end of a rate limit.
        """
        is_over = asyncio.Event()
        self._limits.spawn(type_until(is_over, self._target.type), "typing")
        try:
            yield
        finally:
            is_over.set()

    async def _round(self, *, patient: bool) -> bool:
        """Send the differences between what stands and what is wanted; return whether that
        succeeded."""
        attempt = 0
        while attempt < (_MOST_TRIES if patient else 1):
            if attempt:
                await asyncio.sleep(min(0.5 * 2**attempt, _LONGEST_WAIT_SECONDS))
            try:
                await self._reconcile_anywhere()
            except _FilesRefusedError as error:
                # They are drawn otherwise from now on, at last as a sentence.
                await self._refused(error.uploads)
                continue
            except api_errors.ANY as error:
                if api_errors.code_of(error) in _CLOSED:
                    _log.warning("an answer cannot be shown where it was asked", exc_info=error)
                    is_forbidden = isinstance(error, discord.Forbidden)
                    self.is_refused = is_forbidden and not any(slot.posted for slot in self._slots)
                    self.is_lost.set()
                    return True
                _log.info("a message could not be sent, it is tried again", exc_info=error)
            else:
                return True
            if self.is_lost.is_set():
                return True
            attempt += 1
        return False

    async def _reconcile_anywhere(self) -> None:
        try:
            await self._reconcile(self._draw())
        except message_targets.MovedError:
            self._slots.clear()
            await self._reconcile(self._draw())

    async def _reconcile(self, wanted: tuple[message_layout.MessageDraft, ...]) -> None:
        for index, draft in enumerate(wanted):
            if index == len(self._slots):
                self._slots.append(_Slot(draft))
            slot = self._slots[index]
            if slot.is_gone:
                continue
            if slot.is_refused:
                slot.draft, slot.nonce, slot.tried = draft, secrets.token_hex(12), None
                slot.is_refused = False
            if slot.posted is None:
                await self._send(index, slot)
            if slot.posted is not None and slot.draft != draft:
                await self._change(index, slot, slot.posted, draft)
        while len(self._slots) > len(wanted):
            await self._remove(self._slots[-1])
            self._slots.pop()

    async def _send(self, index: int, slot: _Slot) -> None:
        now = time.time()
        slot.tried = slot.tried or now
        if now - slot.tried > NONCE_SECONDS:
            # The nonce has expired: the message is looked for, so that it does not stand twice.
            known = {other.posted.id for other in self._slots if other.posted is not None}
            slot.posted = await self._target.find(slot.draft, slot.tried, known)
            if slot.posted is not None:
                return
            slot.tried = now
        try:
            slot.posted = await self._target.send(index, slot.draft, slot.nonce)
        except discord.HTTPException as error:
            if error.code == api_errors.UNKNOWN_MESSAGE:
                # The first answer to an interaction stands already, empty; a person deleted it.
                slot.is_gone = True
                return
            slot.is_refused = _is_about_files(slot.draft, error)
            plain = self._plain(slot.draft, error)
            if plain is None:
                raise
            slot.nonce = secrets.token_hex(12)
            slot.posted = await self._target.send(index, plain, slot.nonce)

    async def _anew(self, index: int, slot: _Slot, draft: message_layout.MessageDraft) -> None:
        slot.posted, slot.draft, slot.nonce, slot.tried = None, draft, secrets.token_hex(12), None
        await self._send(index, slot)

    async def _change(
        self,
        index: int,
        slot: _Slot,
        posted: message_targets.Posted,
        draft: message_layout.MessageDraft,
    ) -> None:
        if draft.pings and not slot.draft.pings and posted.way == "bot":
            # An edit notifies nobody: what is to be noticed has to be new.
            await self._remove(slot)
            await self._anew(index, slot, draft)
        else:
            await self._edit(index, slot, posted, draft)

    async def _edit(
        self,
        index: int,
        slot: _Slot,
        posted: message_targets.Posted,
        draft: message_layout.MessageDraft,
    ) -> None:
        try:
            slot.posted = await self._target.edit(posted, slot.draft, draft)
        except discord.HTTPException as error:
            if error.code == api_errors.UNKNOWN_MESSAGE:
                # A person deleted it, who may have had reasons: it is not posted again.
                slot.is_gone = True
                return
            if error.code in _AS_NEW:
                await self._anew(index, slot, draft)
                await self._remove(_Slot(draft, posted))
                return
            plain = self._plain(draft, error)
            if plain is None:
                raise
            slot.posted = await self._target.edit(posted, slot.draft, plain)
        slot.draft = draft

    def _plain(
        self, draft: message_layout.MessageDraft, error: discord.HTTPException
    ) -> message_layout.MessageDraft | None:
        """Return a draft to send instead of one that is refused; see `_without`."""
        plain = _without(draft, error, is_told=self._is_told_of_files)
        self._is_told_of_files |= _is_about_attaching(draft, error)
        return plain

    async def _remove(self, slot: _Slot) -> None:
        if slot.posted is None or slot.is_gone:
            return
        try:
            await self._target.remove(slot.posted)
        except discord.NotFound:
            _log.debug("a message to be deleted was gone already")


async def type_until(is_over: asyncio.Event, type_: Callable[[], Awaitable[object]]) -> None:
    """Show the typing indicator until the event is set."""
    while not is_over.is_set():
        try:
            await type_()
        except api_errors.ANY as error:
            _log.debug("typing could not be shown", exc_info=error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TYPING_SECONDS):
                await is_over.wait()


def _adopted(message: discord.Message, draft: message_layout.MessageDraft) -> _Slot:
    """Return the slot of a message that stands already, of which a draft goes on."""
    names = [file.filename for file in message.attachments]
    kept = [upload for upload in draft.uploads if upload.name in names]
    files = {file.filename: file for file in message.attachments}
    posted = message_targets.Posted(message.id, tuple(files[upload.name] for upload in kept))
    # Whatever differs is sent, the buttons in any case.
    standing = message_layout.MessageDraft(message.content, tuple(kept), pings=draft.pings)
    return _Slot(standing, posted)


def _begins(draft: message_layout.MessageDraft, message: discord.Message) -> bool:
    """Say whether a draft begins with what stands in a message."""
    names = [upload.name for upload in draft.uploads]
    is_same = all(file.filename in names for file in message.attachments)
    return is_same and draft.content.startswith(turn_rendering.without_status(message.content))


def _is_about_attaching(draft: message_layout.MessageDraft, error: discord.HTTPException) -> bool:
    return error.code == api_errors.NO_PERMISSION and bool(draft.uploads)


def _is_about_files(draft: message_layout.MessageDraft, error: discord.HTTPException) -> bool:
    is_too_large = error.status == _TOO_LARGE or error.code in api_errors.FILES_REFUSED
    return is_too_large and bool(draft.uploads)


def _without(
    draft: message_layout.MessageDraft, error: discord.HTTPException, *, is_told: bool
) -> message_layout.MessageDraft | None:
    """Return a draft to send instead of one that is refused; None if that would not help.

    Args:
        draft: that is refused.
        error: why.
        is_told: people know that no files can be attached there.

    Raises:
        _FilesRefusedError: its files have to be other ones.
    """
    if api_errors.is_passing(error):
        return None
    if _is_about_files(draft, error):
        raise _FilesRefusedError(draft.uploads) from error
    if _is_about_attaching(draft, error):
        names = [markdown.line(upload.name, 60) for upload in draft.uploads]
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        note = f"-# 📎 {', '.join(names[:_MAX_NAMES])}{more}"
        note += "" if is_told else f"\n{file_words.NO_ATTACHMENTS}"
    elif error.status == 400 and error.code not in _CLOSED:
        _log.error("Discord refused a message", exc_info=error)
        return message_layout.MessageDraft(discord_words.PART_REFUSED)
    else:
        return None
    # People approve only code that they can see: the button that is left shows it whole, or refuses
    # it.
    offered = tuple(button for button in draft.buttons if button.verb not in _RUN)
    if offered != draft.buttons:
        note += f" {discord_words.CODE_PARTLY_HIDDEN}"
    content = f"{draft.content[: _MAX_CONTENT - len(note)]}\n{note}".strip()
    return dataclasses.replace(draft, content=content, uploads=(), buttons=offered)
