"""Keep an answer's messages in step with what is wanted: paced, each posted once.

Callers give the complete wanted state; only differences are sent. So a state may be skipped, and a
call that failed is simply made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from interpreter_bot import errors
from interpreter_bot.platforms.chat import transport
from interpreter_bot.sessions import session_service
from interpreter_bot.wording import chat_words, file_words

_log = logging.getLogger(__name__)

Draw: TypeAlias = Callable[[], Awaitable[tuple[transport.Draft, ...]]]
Refuse: TypeAlias = Callable[[transport.FilesRefusedError], None]
"""Called when files are refused; from then on, `Draw` must return drafts without them."""
Send: TypeAlias = Callable[[transport.Draft], Awaitable[transport.Posted]]

_MAX_TRIES: Final = 8
_MAX_PAUSE_SECONDS: Final = 20.0
_MAX_RATE_LIMIT_SECONDS: Final = 600.0
_REFUSED_DRAFT: Final = transport.Draft(chat_words.PART_REFUSED)


@dataclasses.dataclass(slots=True)
class Slot:
    """One message of an answer.

    Attributes:
        draft: what it shows, or what is being posted.
        key: under which it is posted.
        replaced: the message that it replaces, until that is deleted.
        is_unconfirmed: it may have been posted, but the response was lost.
        is_gone: it was deleted.
    """

    draft: transport.Draft
    key: transport.PostKey | None = None
    posted: transport.Posted | None = None
    replaced: transport.Posted | None = None
    is_unconfirmed: bool = False
    is_gone: bool = False


class MessageSync:
    """Keeps the messages of one answer in step.

    Attributes:
        has_posted: set once a wanted state was shown in full.
    """

    def __init__(
        self,
        network: transport.Transport,
        location: transport.Location,
        request_id: str,
        draw: Draw,
        refuse: Refuse,
        deliveries: session_service.Deliveries,
        *,
        pace: Callable[[], float],
        refresh_seconds: float | None = None,
        shows_working: bool = True,
    ) -> None:
        """Prepare an answer.

        Args:
            pace: returns the seconds between two rounds, while it changes.
            refresh_seconds: after which it is drawn anew, even if it did not change.
            shows_working: the network shows that the bot works, as if somebody typed.
        """
        self._slots: list[Slot] = []
        self._network = network
        self._location = location
        self._request_id = request_id
        self._draw = draw
        self._refuse = refuse
        self._deliveries = deliveries
        self._pace = pace
        self._refresh_seconds = refresh_seconds
        self._shows_working = shows_working
        self._has_changed = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._is_last = False
        self.has_posted = asyncio.Event()

    @property
    def first_message(self) -> str:
        """Id of the first message; empty until it is posted."""
        posted = self._slots[0].posted if self._slots else None
        return posted.message_id if posted is not None else ""

    def signal_change(self, *, is_urgent: bool = False) -> None:
        """Signal that the wanted state has changed."""
        self._has_changed.set()
        if is_urgent:
            self._is_urgent.set()

    def signal_last_change(self) -> None:
        """Signal the last change."""
        self._is_last = True
        self.signal_change(is_urgent=True)

    async def run(self) -> None:
        """Sync until all of the finished answer is shown.

        Raises:
            LocationClosedError: nothing can be shown there any more.
        """
        failures = 0
        async with contextlib.AsyncExitStack() as stack:
            if self._shows_working:
                await stack.enter_async_context(self._network.show_working(self._location))
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._refresh_seconds):
                        await self._has_changed.wait()
                self._has_changed.clear()
                self._is_urgent.clear()
                is_last = self._is_last
                started_at = time.monotonic()
                is_done = await self._run_round(_MAX_TRIES if is_last else 1)
                if is_last:
                    if not is_done:
                        _log.error("an answer could not be shown completely")
                    return
                failures = 0 if is_done else failures + 1
                if failures:
                    self._has_changed.set()
                # Networks ban bots that keep trying while they are refused.
                pause_seconds = self._pace() * 2**failures - (time.monotonic() - started_at)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(max(pause_seconds, 0), _MAX_PAUSE_SECONDS)):
                        await self._is_urgent.wait()

    async def close(self, sentence: str) -> None:
        """Keep the messages that are posted, without their buttons, and add a sentence."""
        standing_drafts = [slot.draft for slot in self._slots if slot.posted is not None]
        drafts = [
            dataclasses.replace(draft, status="", buttons=(), may_grow=False)
            for draft in standing_drafts
            if draft.text or draft.uploads
        ]

        async def draw() -> tuple[transport.Draft, ...]:
            return (*drafts, transport.Draft(sentence))

        def leave_out_files(error: transport.FilesRefusedError) -> None:
            drafts[:] = [
                draft
                if set(error.uploads).isdisjoint(draft.uploads)
                else dataclasses.replace(draft, uploads=())
                for draft in drafts
                if draft.text or set(error.uploads).isdisjoint(draft.uploads)
            ]

        self._draw, self._refuse = draw, leave_out_files
        await self._run_round(_MAX_TRIES)

    async def _run_round(self, max_tries: int) -> bool:
        """Send the differences between what is shown and wanted; return whether all were sent."""
        attempt = 0
        while attempt < max_tries:
            if attempt:
                await asyncio.sleep(min(0.5 * 2**attempt, _MAX_PAUSE_SECONDS))
            try:
                await self._reconcile()
            except transport.FilesRefusedError as error:
                # This is not counted as a try: the next drafts are without these files.
                self._refuse(error)
                continue
            except transport.RateLimitedError as error:
                await asyncio.sleep(min(error.seconds, _MAX_RATE_LIMIT_SECONDS))
            except transport.RetryableError as error:
                _log.info("a message could not be sent, it is tried again", exc_info=error)
            else:
                self.has_posted.set()
                return True
            attempt += 1
        return False

    async def _reconcile(self) -> None:
        drafts = await self._draw()
        must_repost = False
        for index, draft in enumerate(drafts):
            if index == len(self._slots):
                self._slots.append(Slot(draft))
            slot = self._slots[index]
            if slot.is_gone:
                continue
            _recognize(slot, draft, is_last=self._is_last)
            if must_repost and slot.posted is not None:
                # A message above this one was posted again, below it: post this one again, too.
                slot.posted, slot.replaced = None, slot.posted
            if slot.posted is not None and slot.draft != draft:
                await self._edit(slot, slot.posted, draft)
            if slot.posted is None and not slot.is_gone:
                await self._post(index, slot, draft)
            if slot.posted is not None:
                self._location = slot.posted.location
            if slot.replaced is not None:
                await self._network.delete(slot.replaced)
                slot.replaced, must_repost = None, True
        while len(self._slots) > len(drafts):
            last_slot = self._slots[-1]
            await self._find_unconfirmed(last_slot)
            if last_slot.posted is not None and not last_slot.is_gone:
                await self._network.delete(last_slot.posted)
            self._slots.pop()
            session = self._location.session
            await _try_to_store(
                self._deliveries.delete(session.platform, self._request_id, len(self._slots))
            )

    async def _post(self, index: int, slot: Slot, draft: transport.Draft) -> None:
        """Post a message, unless an earlier post of it arrived and only its response was lost."""
        await self._find_unconfirmed(slot)
        is_repeated = slot.is_unconfirmed and slot.draft is not transport.UNKNOWN
        if slot.key is None or (slot.posted is None and not is_repeated):
            slot.draft, slot.key = draft, make_key(self._request_id, index, draft)
            await self._note_delivery(slot.key)
        if slot.posted is None:
            location, key = self._location, slot.key
            try:
                slot.posted = await _send_or_plain(
                    slot.draft, lambda sent_draft: self._network.post(location, sent_draft, key)
                )
            except transport.DeletedError:
                slot.is_gone = True
                return
            except transport.OutcomeUnknownError:
                slot.is_unconfirmed = True
                raise
            except transport.FilesRefusedError:
                slot.is_unconfirmed = False
                raise
        slot.is_unconfirmed = False
        await self._note_delivery(slot.key, slot.posted.message_id)
        if slot.draft != draft:
            await self._edit(slot, slot.posted, draft)

    async def _find_unconfirmed(self, slot: Slot) -> None:
        """Look for a message whose post was not confirmed."""
        if slot.is_unconfirmed and slot.key is not None:
            known_ids = {
                posted_slot.posted.message_id
                for posted_slot in self._slots
                if posted_slot.posted is not None
            }
            slot.posted = await self._network.find(self._location, slot.key, known_ids)

    async def adopt(self) -> None:
        """Go on in the messages that a former bot, or a former answer, posted for the request."""
        platform = self._location.session.platform
        try:
            deliveries = await self._deliveries.list_for_request(platform, self._request_id)
        except errors.StoreError:
            _log.exception("the messages of an answer could not be looked up")
            return
        for delivery in deliveries:
            key = transport.PostKey(
                request_id=self._request_id,
                index=len(self._slots),
                nonce=delivery.nonce,
                digest=delivery.digest,
                first_tried_at=delivery.first_tried_at,
            )
            posted = (
                transport.Posted(delivery.message, self._location) if delivery.message else None
            )
            # A message without an id is looked for before it is posted again.
            self._slots.append(Slot(transport.UNKNOWN, key, posted, is_unconfirmed=posted is None))

    async def _note_delivery(self, key: transport.PostKey, message: str = "") -> None:
        """Record a message that is about to be posted, or was."""
        await _try_to_store(
            self._deliveries.put(
                self._location.session.platform,
                key.request_id,
                key.index,
                nonce=key.nonce,
                digest=key.digest,
                first_tried_at=key.first_tried_at,
                message=message,
            )
        )

    async def _edit(self, slot: Slot, posted: transport.Posted, draft: transport.Draft) -> None:
        """Edit a message; if it cannot become the draft, it is posted again in the same round."""
        try:
            slot.posted = await _send_or_plain(
                draft, lambda sent_draft: self._network.edit(posted, slot.draft, sent_draft)
            )
            slot.draft = draft
        except transport.DeletedError:
            slot.is_gone = True
        except (transport.ContentRefusedError, transport.UneditableError):
            slot.posted, slot.replaced = None, posted


def _recognize(slot: Slot, draft: transport.Draft, *, is_last: bool) -> None:
    """Recognize a message of a former bot that was posted as it is wanted: it needs no edit.

    Files, and the end that notifies a person, are posted once; other messages may have been edited
    since.
    """
    is_never_edited = (draft.uploads and not draft.full_text) or (draft.notified_person and is_last)
    if is_never_edited and slot.draft is transport.UNKNOWN and slot.key is not None:
        expected_key = make_key(slot.key.request_id, slot.key.index, draft)
        if slot.key.digest == expected_key.digest:
            slot.draft = draft


async def _try_to_store(storage_call: Awaitable[None]) -> None:
    """Make a call of the store; an answer is shown even if that fails."""
    try:
        await storage_call
    except errors.StoreError:
        _log.exception("the messages of an answer could not be noted")


async def post_once(network: transport.Transport, location: transport.Location, text: str) -> None:
    """Post a sentence that is no answer, if that is possible."""
    draft = transport.Draft(text)
    with contextlib.suppress(transport.TransportError):
        await network.post(location, draft, make_key("", 0, draft))


def make_key(
    request_id: str, index: int, draft: transport.Draft, *, nonce: str = ""
) -> transport.PostKey:
    """Return a key for a post that begins now; its nonce is random if none is given."""
    return transport.PostKey(
        request_id=request_id,
        index=index,
        nonce=nonce or secrets.token_hex(12),
        digest=transport.make_digest(
            draft.full_text,
            [upload.name for upload in draft.uploads],
            [f"{button.action} {button.subject_id}" for button in draft.buttons],
        ),
        first_tried_at=time.time(),
    )


async def _send_or_plain(draft: transport.Draft, send: Send) -> transport.Posted:
    """Send a draft; if it is refused, without markup; if that is refused, a sentence instead."""
    if gone_uploads := [upload for upload in draft.uploads if upload.is_gone]:
        raise transport.FilesRefusedError(gone_uploads, reason=file_words.CHANGED_SINCE)
    for attempted_draft in (draft, dataclasses.replace(draft, is_plain=True)):
        try:
            return await send(attempted_draft)
        except transport.ContentRefusedError as error:
            _log.error("a message was refused", exc_info=error)
    return await send(_REFUSED_DRAFT)
