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

from interpreter_bot import errors, settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.commands import session_listings
from interpreter_bot.hosts import remote_host, session_moves
from interpreter_bot.kernels.files import session_locks, workspaces
from interpreter_bot.platforms.console import terminal_input
from interpreter_bot.store import columns, databases
from interpreter_bot.text import quantities, safe_text

_FAILED: Final = 1
_ENDED: Final = "An operator ended the Python of this conversation."
_DELETED: Final = (
    "An operator deleted the files of this conversation in /mnt/data, its variables and "
    "its pictures. The messages are kept."
)
_NO_HOST: Final = (
    "No process that keeps Python kernels answers here, so only what lies on the disk is known; "
    "kernels inside a bot's own process are out of reach."
)
_INSIDE: Final = "A bot is using it whose kernels are in its own process; end that first."
_UNASKED: Final = "Nobody can confirm this here; add --yes if you are sure."
_QUESTION: Final = "Forget {what}: Python, variables and files in /mnt/data? [y/N] "


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List sessions, or end, save, move or forget some.

    Raises:
        BotError: nothing was done; the sentence says why.
    """
    return asyncio.run(_run(config, options))


async def _run(config: settings.Settings, options: argparse.Namespace) -> int:
    opening = execution_startup.open_database(config, takes_orphans=False)
    opening_hosts = session_listings.opened_hosts(
        config, lambda said: sys.stderr.write(f"{said}\n")
    )
    async with opening as database, opening_hosts as hosts:
        everyone = await session_listings.known(config, database, hosts)
        if options.verb is None:
            held = [one for one in everyone if one.status or one.saved or options.all]
            _print(held, is_json=options.json)
            if not (hosts or options.json):
                sys.stderr.write(f"{_NO_HOST}\n")
            return 0
        chosen = _chosen(everyone, options.names)
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
                said = await act(entry)
            except errors.BotError as error:
                said, failures = str(error), failures + 1
            sys.stdout.write(f"{entry.short_name}: {said}\n")
        return _FAILED if failures else 0


def _chosen(
    everyone: Sequence[session_listings.Entry], names: Sequence[str]
) -> list[session_listings.Entry]:
    """Return the sessions of those names.

    Raises:
        BotError: a name is that of none, or of several.
    """
    chosen = {}
    for name in names:
        found = [one for one in everyone if name and name in (one.key, one.name[: len(name)])]
        if len(found) != 1:
            shown = safe_text.harmless(name)
            several = ", ".join(one.short_name for one in found)
            raise errors.BotError(
                f"Several sessions begin with {shown}: {several}."
                if found
                else f"There is no session {shown}."
            )
        chosen[found[0].key] = found[0]
    return list(chosen.values())


async def _ask_first(chosen: Sequence[session_listings.Entry]) -> None:
    """Ask whether sessions are to be forgotten.

    Raises:
        BotError: they are not.
    """
    if not (sys.stdin and sys.stdin.isatty()):
        raise errors.BotError(_UNASKED)
    for one in chosen:
        sys.stdout.write("  ".join(one.cells()[:5]) + "\n")
    sys.stdout.write(_QUESTION.format(what=quantities.count(len(chosen), "session")))
    sys.stdout.flush()
    answers = terminal_input.StdinAnswers(is_script=False)
    if await answers.approval(values.YES, ()) is None:
        raise errors.BotError("Nothing was forgotten.")


def _verbs(
    config: settings.Settings,
    database: databases.Database,
    hosts: Sequence[remote_host.RemoteHost],
) -> Mapping[str, Callable[[session_listings.Entry], Awaitable[str]]]:
    async def save(entry: session_listings.Entry) -> str:
        host = _host(entry)
        if entry.status is None:
            raise errors.KernelError("It has no Python now; what is saved stays.")
        is_saved = await host.save(entry.key)
        saved = (await host.variables(entry.key)).saved
        if not is_saved or saved is None:
            raise errors.KernelError("It was not saved: it is in use, or nothing can be kept.")
        lost = f", {saved.lost_count:,} cannot be" if saved.lost_count else ""
        return f"{quantities.count(saved.kept, 'variable')} saved{lost}."

    async def end(entry: session_listings.Entry) -> str:
        host = _host(entry)
        if entry.status is None:
            return "It has no Python now."
        await host.end(entry.key, _ENDED)
        is_saved = (await host.variables(entry.key)).saved is not None
        return f"Its Python is ended; {'some' if is_saved else 'none'} of its variables are saved."

    async def forget(entry: session_listings.Entry) -> str:
        session = entry.session
        if config.host.fleet:
            # What lies on its machine, and in the store, is deleted there or not at all.
            _host(entry)
        row = {"gone": _DELETED, "at": columns.now().isoformat()}
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
                await _remove(await session_listings.stored_workspaces(config).of(entry.key))
        except errors.BotError:
            if session is not None:
                await database.sessions.note_files(session.id, session.files, instead_of=row)
            raise
        if session is not None:
            await database.parts.release_files(session.id)
        return "Its Python, variables and files are gone."

    return {"save": save, "end": end, "forget": forget}


async def _move(
    database: databases.Database, target: remote_host.RemoteHost, entry: session_listings.Entry
) -> str:
    """Move a session to another machine of a fleet, with its files and variables."""
    if not entry.epoch:
        raise errors.KernelError("It is on no machine of a fleet yet.")
    source, data_id = _host(entry), target.connection.status.data_id
    if source.connection is target.connection:
        return "It is already there."
    await session_moves.SessionMoves().move_out(entry.key, source, target)
    placed = await database.placements.put(entry.key, data_id, after=entry.epoch)
    if placed.data_id != data_id:
        raise errors.KernelError("It was moved elsewhere meanwhile.")
    return f"It continues at {target.connection.address}, with its files and variables."


def _target(hosts: Sequence[remote_host.RemoteHost], name: str) -> remote_host.RemoteHost:
    """Return the host at an address, as `host status` shows it.

    Raises:
        BotError: there is none that answers.
    """
    for host in hosts:
        if str(host.connection.address) == name:
            return host
    known = ", ".join(str(host.connection.address) for host in hosts) or "none"
    shown = safe_text.harmless(name)
    raise errors.BotError(f"There is no host at {shown}; those that answer: {known}.")


async def _remove(workspace: workspaces.Workspace) -> None:
    """Delete what lies on the disk of a session without a host.

    Raises:
        KernelError: a bot has its kernel.
    """
    async with session_locks.SessionLocks().unused(workspace) as is_unused:
        if not is_unused:
            raise errors.KernelError(_INSIDE)
        await workspace.remove()


def _host(entry: session_listings.Entry) -> remote_host.RemoteHost:
    """Return what keeps a session's kernel.

    Raises:
        KernelError: nothing that answers.
    """
    if entry.host is None:
        raise errors.KernelError(_NO_HOST)
    return entry.host


def _print(entries: Sequence[session_listings.Entry], *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json.dumps({"sessions": [one.facts() for one in entries]}) + "\n")
        return
    table = rich.table.Table(*session_listings.COLUMNS, box=rich.box.SIMPLE_HEAD)
    for one in entries:
        # As texts: words in brackets would be rich's markup.
        table.add_row(*map(rich.text.Text, one.cells()))
    rich.console.Console(soft_wrap=True).print(table)
    memory = sum(one.status.memory_bytes or 0 for one in entries if one.status)
    saved = sum(one.saved.bytes for one in entries if one.saved)
    sys.stdout.write(
        f"{quantities.count(len(entries), 'session')}, {quantities.size(memory)} of memory, "
        f"{quantities.size(saved)} saved.\n"
    )
