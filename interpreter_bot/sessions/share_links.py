"""Links by which people of a chat read its conversation on the page: visits.

A person asks for a link in the conversation, so the chat has just allowed them to read it. The link
works once and for minutes; the page exchanges it for a pass that shows only this conversation, in
one browser, for an hour. Both are documents encrypted with the key ring, so that nobody else can
make one; the store records used links for all bots. The chat's permissions are not checked again: a
person who leaves a channel can read the conversation until the pass ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Final
from urllib import parse

from interpreter_bot import encryption, errors, values
from interpreter_bot.wording import session_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_dependencies

LINK_SECONDS: Final = 300
PASS_SECONDS: Final = 3600

_SEALED_PATTERN: Final = re.compile(r"[A-Za-z0-9_=-]{1,4096}")


@dataclasses.dataclass(frozen=True, slots=True)
class Visit:
    """The right to read one session.

    Attributes:
        id: distinguishes the visits of a browser; not secret.
        key: of the session.
        expires_at: when the right expires, in seconds since the epoch.
    """

    id: str
    key: values.SessionKey
    expires_at: float


class ShareLinks:
    """Links and passes of visits."""

    def __init__(self, services: session_dependencies.SessionDependencies) -> None:
        self._services = services
        web = services.config.web
        self._address = web.public_url.rstrip("/") if web.is_listening else ""

    @property
    def is_on(self) -> bool:
        """Whether the page has a public address."""
        return bool(self._address)

    async def link(self, key: values.SessionKey) -> str:
        """Make a link to a session, for a person whom its platform lets see it at this moment.

        Raises:
            BotError: there is no such session, or the page has no public address.
        """
        if not self.is_on:
            raise errors.BotError(session_words.NO_PAGE)
        if await self._services.database.sessions.find(key) is None:
            raise errors.BotError(session_words.CONVERSATION_EMPTY)
        visit = Visit(secrets.token_hex(16), key, time.time() + LINK_SECONDS)
        # Browsers send the part after # to no server, so it is in no log and no preview.
        return f"{self._address}/visit#{await self._seal('link', visit)}"

    async def enter(self, link: str) -> tuple[Visit, str]:
        """Use the secret part of a link; return the visit, and the pass that proves it.

        Raises:
            BotError: the link is invalid, used or too old.
        """
        visit = await self._open("link", link)
        if visit is None or not await self._services.database.events.claim(
            "web", f"visit {visit.id}"
        ):
            raise errors.BotError(session_words.PAGE_LINK_USED)
        pass_visit = dataclasses.replace(visit, expires_at=time.time() + PASS_SECONDS)
        return pass_visit, await self._seal("pass", pass_visit)

    async def find(self, visit_id: str, proof: str) -> Visit | None:
        """Return the visit that a pass proves; None if the pass is invalid or expired."""
        visit = await self._open("pass", proof)
        return visit if visit is not None and visit.id == visit_id else None

    async def shows(self, key: values.SessionKey, sha256: str) -> bool:
        """Return whether a picture or a page of that hash was shown in a session."""
        session = await self._services.database.sessions.find(key)
        database = self._services.database
        return session is not None and await database.parts.has_blob(session.id, sha256)

    async def _seal(self, purpose: str, visit: Visit) -> str:
        key_text = values.format_key(visit.key)
        content = json.dumps([purpose, visit.id, key_text, visit.expires_at])
        ring = encryption.KeyRing.from_settings(self._services.config)
        sealed = await asyncio.to_thread(ring.encrypt, content)
        return sealed.removeprefix(encryption.ENCRYPTED_PREFIX)

    async def _open(self, purpose: str, sealed: str) -> Visit | None:
        """Decrypt a visit that was sealed for a purpose; None if it was not, or has ended."""
        if not self.is_on or _SEALED_PATTERN.fullmatch(sealed) is None:
            return None
        ring = encryption.KeyRing.from_settings(self._services.config)
        try:
            # The ring returns text without the prefix as it is, so the prefix is added here.
            content = await asyncio.to_thread(ring.decrypt, encryption.ENCRYPTED_PREFIX + sealed)
        except errors.SettingsError:
            return None
        # The ring encrypts other texts, too, none of which begins like this.
        document = json.loads(content) if content.startswith(f'["{purpose}", ') else None
        if not isinstance(document, list) or document[3] < time.time():
            return None
        return Visit(document[1], values.parse_key(document[2]), document[3])


def find_host(public_url: str) -> str:
    """Return the host of an address as browsers write it: with its port unless that is usual."""
    parts = parse.urlsplit(public_url)
    usual = ":443" if parts.scheme == "https" else ":80"
    return parts.netloc.lower().removesuffix(usual)
