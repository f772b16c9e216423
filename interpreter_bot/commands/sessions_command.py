"""`interpreter-bot sessions`: list what is kept of conversations; end, save, move or forget some.

Hosts of kernels are asked over their sockets. Where none answers, only what lies on the disk is
known, and nothing but forgetting can be done.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import rich.box
import rich.console
import rich.table
import rich.text

from interpreter_bot import errors, events, settings
from interpreter_bot.app import execution_startup
from interpreter_bot.commands import session_listings
from interpreter_bot.hosts import placed_hosts, remote_host
from interpreter_bot.kernels.files import session_locks, workspaces
from interpreter_bot.platforms.console import terminal_input
from interpreter_bot.store import columns, databases
from interpreter_bot.text import safe_text
from interpreter_bot.wording import operator_words

_FAILED: Final = 1


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List sessions, or end, save, move or forget some.

    Raises:
        BotError: nothing was done; the sentence says why.
    """
    return asyncio.run(_run(config, options))


async def _run(config: settings.Settings, options: argparse.Namespace) -> int:
    opening = execution_startup.open_database(config, takes_orphans=False)
    opening_hosts = session_listings.opened_hosts(
        config, lambda line: sys.stderr.write(f"{line}\n")
    )
    async with opening as database, opening_hosts as hosts:
        entries = await session_listings.known(config, database, hosts)
        if options.verb is None:
            listed = [one for one in entries if one.status or one.saved or options.all]
            _print(listed, is_json=options.json)
            if not (hosts or options.json):
                sys.stderr.write(f"{operator_words.NO_HOST_ANSWERS}\n")
            return 0
        chosen = _chosen(entries, options.names)
        if options.verb == "forget" and not options.yes:
            await _ask_first(chosen)
        act: Callable[[session_listings.Entry], Awaitable[str]]
        if options.verb == "move":
            act = functools.partial(_move, database, _target(hosts, options.host))
        else:
            act = _verbs(config, database, hosts)[options.verb]
        failures = 0
        for entry in chosen:
            try:
                line = await act(entry)
            except errors.BotError as error:
                line, failures = str(error), failures + 1
            sys.stdout.write(f"{entry.short_name}: {line}\n")
        return _FAILED if failures else 0


def _chosen(
    entries: Sequence[session_listings.Entry], names: Sequence[str]
) -> list[session_listings.Entry]:
    """Return the sessions of those names.

    Raises:
        BotError: a name is that of none, or of several.
    """
    chosen = {}
    for name in names:
        matches = [
            entry for entry in entries if name and name in (entry.key, entry.name[: len(name)])
        ]
        if len(matches) != 1:
            safe_name = safe_text.harmless(name)
            several = ", ".join(entry.short_name for entry in matches)
            raise errors.BotError(
                operator_words.several_sessions(safe_name, several)
                if matches
                else operator_words.no_session(safe_name)
            )
        chosen[matches[0].key] = matches[0]
    return list(chosen.values())


async def _ask_first(chosen: Sequence[session_listings.Entry]) -> None:
    """Ask whether sessions are to be forgotten.

    Raises:
        BotError: they are not.
    """
    if not (sys.stdin and sys.stdin.isatty()):
        raise errors.BotError(operator_words.NOBODY_CONFIRMS)
    for entry in chosen:
        sys.stdout.write("  ".join(entry.cells()[:5]) + "\n")
    sys.stdout.write(operator_words.confirm_forgetting(len(chosen)))
    sys.stdout.flush()
    answers = terminal_input.StdinAnswers(is_script=False)
    if isinstance(await answers.approval(()), events.Declined):
        raise errors.BotError(operator_words.NOT_FORGOTTEN)


def _verbs(
    config: settings.Settings,
    database: databases.Database,
    hosts: Sequence[remote_host.RemoteHost],
) -> Mapping[str, Callable[[session_listings.Entry], Awaitable[str]]]:
    async def save(entry: session_listings.Entry) -> str:
        host = _host(entry)
        if entry.status is None:
            raise errors.KernelError(operator_words.NO_PYTHON_TO_SAVE)
        is_saved = await host.save(entry.key)
        saved = (await host.variables(entry.key)).saved
        if not is_saved or saved is None:
            raise errors.KernelError(operator_words.NOT_SAVED)
        return operator_words.variables_saved(saved.kept, saved.lost_count)

    async def end(entry: session_listings.Entry) -> str:
        host = _host(entry)
        if entry.status is None:
            return operator_words.NO_PYTHON
        await host.end_session(entry.key, operator_words.PYTHON_ENDED)
        is_saved = (await host.variables(entry.key)).saved is not None
        return operator_words.ended(is_saved=is_saved)

    async def forget(entry: session_listings.Entry) -> str:
        session = entry.session
        if config.host.fleet:
            # What lies on its machine, and in the store, is deleted there or not at all.
            _host(entry)
        row = {"gone": operator_words.FILES_DELETED, "at": columns.now().isoformat()}
        if session is not None:
            # First: a bot that comes in between says why they are gone.
            await database.sessions.note_files(session.id, row)
        try:
            if entry.host is not None:
                await entry.host.forget(entry.key)
                others = hosts if config.host.fleet else ()
                # Where it was in earlier epochs, files may still be.
                await remote_host.ask_all(others, lambda other: other.forget(entry.key))
            else:
                await _remove(await session_listings.stored_workspaces(config).ensure(entry.key))
        except errors.BotError:
            if session is not None:
                await database.sessions.note_files(session.id, session.files, instead_of=row)
            raise
        if session is not None:
            await database.parts.release_files(session.id)
        return operator_words.FORGOTTEN

    return {"save": save, "end": end, "forget": forget}


async def _move(
    database: databases.Database, target: remote_host.RemoteHost, entry: session_listings.Entry
) -> str:
    """Move a session to another machine of a fleet, with its files and variables."""
    if not entry.epoch:
        raise errors.KernelError(operator_words.NOT_IN_FLEET)
    source, data_id = _host(entry), target.connection.status.data_id
    if source.connection is target.connection:
        return operator_words.ALREADY_THERE
    await placed_hosts.SessionMoves().move_out(entry.key, source, target)
    placed = await database.placements.put(entry.key, data_id, after=entry.epoch)
    if placed.data_id != data_id:
        raise errors.KernelError(operator_words.MOVED_ELSEWHERE)
    return operator_words.moved(target.connection.address)


def _target(hosts: Sequence[remote_host.RemoteHost], name: str) -> remote_host.RemoteHost:
    """Return the host at an address, as `host status` shows it.

    Raises:
        BotError: there is none that answers.
    """
    for host in hosts:
        if str(host.connection.address) == name:
            return host
    addresses = ", ".join(str(host.connection.address) for host in hosts) or "none"
    safe_name = safe_text.harmless(name)
    raise errors.BotError(operator_words.no_host(safe_name, addresses))


async def _remove(workspace: workspaces.Workspace) -> None:
    """Delete what lies on the disk of a session without a host.

    Raises:
        KernelError: a bot has its kernel.
    """
    async with session_locks.SessionLocks().locked_if_unused(workspace) as is_unused:
        if not is_unused:
            raise errors.KernelError(operator_words.USED_BY_BOT)
        await workspace.remove()


def _host(entry: session_listings.Entry) -> remote_host.RemoteHost:
    """Return what keeps a session's kernel.

    Raises:
        KernelError: nothing that answers.
    """
    if entry.host is None:
        raise errors.KernelError(operator_words.NO_HOST_ANSWERS)
    return entry.host


def _print(entries: Sequence[session_listings.Entry], *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json.dumps({"sessions": [entry.facts() for entry in entries]}) + "\n")
        return
    table = rich.table.Table(*session_listings.COLUMNS, box=rich.box.SIMPLE_HEAD)
    for entry in entries:
        # As texts: words in brackets would be rich's markup.
        table.add_row(*map(rich.text.Text, entry.cells()))
    rich.console.Console(soft_wrap=True).print(table)
    memory_bytes = sum(entry.status.memory_bytes or 0 for entry in entries if entry.status)
    saved_bytes = sum(entry.saved.bytes for entry in entries if entry.saved)
    sys.stdout.write(operator_words.totals(len(entries), memory_bytes, saved_bytes))
