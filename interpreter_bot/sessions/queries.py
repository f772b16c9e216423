"""What there is of each conversation: history, files, choices, use. Nothing is run here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from interpreter_bot import settings, values
from interpreter_bot.sessions import (
    approvals,
    exports,
    histories,
    quotas,
    requests,
    turn_inputs,
    turns,
)
from interpreter_bot.store import records

_NOTEBOOK_TURNS: Final = 500


class Queries:
    """All conversations, as far as they are kept."""

    def __init__(self, services: turns.TurnServices) -> None:
        self._services = services

    @property
    def limits(self) -> settings.Limits:
        """What one conversation's code may use."""
        return self._services.config.limits

    @property
    def is_sandboxed(self) -> bool:
        """Whether there are walls around the code."""
        return self._services.pool.is_sandboxed

    @property
    def engine(self) -> object:
        """The database's engine, for a platform's library that keeps tables of its own in it."""
        return self._services.database.engine

    @property
    def models(self) -> tuple[str, ...]:
        """Titles of the models there are, the default first."""
        return self._services.catalogue.titles

    async def rename(self, key: values.SessionKey, title: str) -> None:
        """Give a conversation a title for lists."""
        session = await self._services.database.sessions.open(key)
        await self._services.database.sessions.entitle(session.id, title)

    async def history(
        self, key: values.SessionKey, *, most: int = 50
    ) -> tuple[histories.PastTurn, ...]:
        """Return the latest turns, in the order in which they began."""
        session = await self._services.database.sessions.find(key)
        if session is None:
            return ()
        return await histories.load(self._services.database, session.id, most=most)

    async def kept(self, sha256: str) -> bytes | None:
        """Return the bytes of a past picture or page; None where they are gone."""
        return await self._services.database.files.load(sha256)

    async def notebook(self, key: values.SessionKey) -> bytes:
        """Return a conversation as a Jupyter notebook (nbformat 4, UTF-8)."""
        past = await self.history(key, most=_NOTEBOOK_TURNS)
        digests = {
            part.output.sha256
            for turn in past
            for part in turn.parts
            if isinstance(part, histories.PastOutput)
            and isinstance(part.output, histories.PastDisplay)
        }
        contents = {digest: await self.kept(digest) for digest in digests}
        present = {digest: data for digest, data in contents.items() if data is not None}
        return await asyncio.to_thread(exports.write, past, present)

    async def files(self, key: values.SessionKey) -> tuple[values.FileInfo, ...]:
        """Return the files of a conversation, by name."""
        workspace = await self._services.pool.workspace(values.text(key))
        return await workspace.list()

    @contextlib.asynccontextmanager
    async def reading(
        self, key: values.SessionKey, name: str
    ) -> AsyncIterator[tuple[values.FileInfo, AsyncIterator[bytes]]]:
        """Open a file of a conversation, to be read in pieces inside the context.

        Raises:
            WorkspaceError: there is no such file, or it cannot be read.
        """
        workspace = await self._services.pool.workspace(values.text(key))
        async with workspace.read(name) as content:
            yield content.info, aiter(content)

    async def put(self, key: values.SessionKey, attachment: requests.Attachment) -> str:
        """Put a file into a conversation's workspace; returns the name it got there.

        Raises:
            BotError: it is refused, or could not be had.
        """
        workspace = await self._services.pool.workspace(values.text(key))
        return (await turn_inputs.put_files(attachment, workspace, self.limits)).name

    async def model(self, key: values.SessionKey, *, person: str = "") -> str:
        """Return the title of the model that a conversation asks; empty where there is none.

        Args:
            key: the conversation.
            person: id of who would ask; what they chose counts where the conversation chose none.
        """
        database = self._services.database
        session = await database.sessions.find(key)
        return await turn_inputs.preferred(session, key, database, self.models, person=person)

    def check_model(self, title: str) -> None:
        """Look whether there is such a model.

        Raises:
            BotError: there is none, or none at all; the sentence says which there are.
        """
        self._services.catalogue.model(title)

    async def choose_model(self, key: values.SessionKey, title: str | None) -> None:
        """Choose a conversation's model; None goes back to the default.

        Raises:
            BotError: there is no such model.
        """
        if title is not None:
            self.check_model(title)
        session = await self._services.database.sessions.open(key)
        await self._services.database.sessions.choose_model(session.id, title)

    async def usage(self, key: values.SessionKey, person: requests.Person) -> histories.Usage:
        """Return what a conversation, and a person today, have used."""
        usage = self._services.database.usage
        session = await self._services.database.sessions.find(key)
        ever = await usage.of_session(session.id) if session else records.Spending()
        today = await usage.of_person(person.id, platform=key.platform, workspace=key.workspace)
        allowance = await quotas.limits_in_words(
            self._services.config.allowance_on(key.platform), key, person, self._services.database
        )
        return histories.Usage(
            session=quotas.shown(ever),
            today=quotas.shown(today),
            cpu_seconds=ever.cpu_seconds,
            allowed_money=allowance.money,
            allowed_tokens=allowance.tokens,
        )

    async def choices(self, scope: values.Scope) -> dict[str, Any]:
        """Return what holds in a scope, by name; the narrowest choice around it counts."""
        return await self._services.database.choices.effective(scope)

    async def approval(
        self, scope: values.Scope, at_least: requests.Approval = "never"
    ) -> requests.Approval:
        """Return whether people in a scope are asked before code runs, for people to see.

        Args:
            scope: where.
            at_least: what the platform's own settings demand.
        """
        wanted = self._services.config.sessions.approval
        return await approvals.in_effect(scope, self._services.database, wanted, at_least)

    async def choose(self, scope: values.Scope, name: str, value: object | None) -> None:
        """Choose for a scope; None forgets, so that a wider choice holds again."""
        if value is None:
            await self._services.database.choices.remove(scope, name)
        else:
            await self._services.database.choices.put(scope, name, value)

    async def claim(self, platform: str, event_id: str) -> bool:
        """Say whether an event is new: of all that ever ask, exactly one hears yes."""
        return await self._services.database.events.claim(platform, event_id)
