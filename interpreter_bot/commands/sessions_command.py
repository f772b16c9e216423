"""`interpreter-bot sessions`: list sessions; end, save, move or forget some.

Hosts of kernels are asked over their sockets. If none answers, only the files on the disk are
known, and sessions can only be forgotten.
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
from interpreter_bot.commands import exit_statuses, session_listings
from interpreter_bot.hosts import placed_hosts, remote_host
from interpreter_bot.kernels.files import session_locks, workspaces
from interpreter_bot.platforms.console import terminal_input
from interpreter_bot.store import columns, databases
from interpreter_bot.text import safe_text
from interpreter_bot.wording import operator_words

_MAX_COLUMNS: Final = 1000


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List sessions, or end, save, move or forget some.

    Raises:
        BotError: nothing was done.
    """
    return asyncio.run(_run(config, options))


async def _run(config: settings.Settings, options: argparse.Namespace) -> int:
    database_context = execution_startup.open_database(config, takes_orphans=False)
    hosts_context = session_listings.open_hosts(config, lambda line: sys.stderr.write(f"{line}\n"))
    async with database_context as database, hosts_context as hosts:
        entries = await session_listings.list_sessions(config, database, hosts)
        if options.verb is None:
            listed_entries = [
                entry for entry in entries if entry.status or entry.saved or options.all
            ]
            _print_list(listed_entries, is_json=options.json)
            if not (hosts or options.json):
                sys.stderr.write(f"{operator_words.NO_HOST_ANSWERS}\n")
            return 0
        named_entries = _find_named(entries, options.names)
        if options.verb == "forget" and not options.yes:
            await _confirm_forgetting(named_entries)
        action: Callable[[session_listings.SessionEntry], Awaitable[str]]
        if options.verb == "move":
            action = functools.partial(_move, database, _find_host(hosts, options.host))
        else:
            action = _make_actions(config, database, hosts)[options.verb]
        failure_count = 0
        for entry in named_entries:
            try:
                line = await action(entry)
            except errors.BotError as error:
                line, failure_count = str(error), failure_count + 1
            sys.stdout.write(f"{entry.short_name}: {line}\n")
        return exit_statuses.FAILED if failure_count else 0


def _find_named(
    entries: Sequence[session_listings.SessionEntry], names: Sequence[str]
) -> list[session_listings.SessionEntry]:
    """Return the sessions whose names begin with the given ones.

    Raises:
        BotError: no session has such a name, or several have.
    """
    entries_by_key = {}
    for name in names:
        matches = [
            entry for entry in entries if name and name in (entry.key, entry.name[: len(name)])
        ]
        if len(matches) != 1:
            safe_name = safe_text.sanitize(name)
            matching_names = ", ".join(entry.short_name for entry in matches)
            raise errors.BotError(
                operator_words.several_sessions(safe_name, matching_names)
                if matches
                else operator_words.no_session(safe_name)
            )
        entries_by_key[matches[0].key] = matches[0]
    return list(entries_by_key.values())


async def _confirm_forgetting(entries: Sequence[session_listings.SessionEntry]) -> None:
    """Ask for confirmation before sessions are forgotten.

    Raises:
        BotError: it was not given.
    """
    if not (sys.stdin and sys.stdin.isatty()):
        raise errors.BotError(operator_words.NOBODY_CONFIRMS)
    for entry in entries:
        sys.stdout.write("  ".join(entry.cells()[:5]) + "\n")
    sys.stdout.write(operator_words.confirm_forgetting(len(entries)))
    sys.stdout.flush()
    answers = terminal_input.StdinAnswers(is_script=False)
    if isinstance(await answers.read_approval(()), events.Declined):
        raise errors.BotError(operator_words.NOT_FORGOTTEN)


def _make_actions(
    config: settings.Settings,
    database: databases.Database,
    hosts: Sequence[remote_host.RemoteHost],
) -> Mapping[str, Callable[[session_listings.SessionEntry], Awaitable[str]]]:
    async def save(entry: session_listings.SessionEntry) -> str:
        host = _require_host(entry)
        if entry.status is None:
            raise errors.KernelError(operator_words.NO_PYTHON_TO_SAVE)
        is_saved = await host.save(entry.key)
        saved = (await host.variables(entry.key)).saved
        if not is_saved or saved is None:
            raise errors.KernelError(operator_words.NOT_SAVED)
        return operator_words.variables_saved(saved.kept_count, saved.lost_count)

    async def end(entry: session_listings.SessionEntry) -> str:
        host = _require_host(entry)
        if entry.status is None:
            return operator_words.NO_PYTHON
        await host.end_session(entry.key, operator_words.PYTHON_ENDED)
        is_saved = (await host.variables(entry.key)).saved is not None
        return operator_words.python_ended(is_saved=is_saved)

    async def forget(entry: session_listings.SessionEntry) -> str:
        session = entry.session
        if config.host.fleet:
            # Only its host can delete the files on its machine and in the store.
            _require_host(entry)
        notice = {"gone": operator_words.FILES_DELETED, "at": columns.now().isoformat()}
        if session is not None:
            # Recorded first: a bot that opens the session now can then say why files are gone.
            await database.sessions.note_files(session.id, notice)
        try:
            if entry.host is not None:
                await entry.host.forget(entry.key)
                others = hosts if config.host.fleet else ()
                # Hosts of earlier epochs may still have files.
                await remote_host.ask_all(others, lambda other: other.forget(entry.key))
            else:
                await _delete_workspace(
                    await session_listings.open_workspaces(config).ensure(entry.key)
                )
        except errors.BotError:
            if session is not None:
                await database.sessions.note_files(session.id, session.files, expected=notice)
            raise
        if session is not None:
            await database.parts.release_blobs(session.id)
        return operator_words.SESSION_FORGOTTEN

    return {"save": save, "end": end, "forget": forget}


async def _move(
    database: databases.Database,
    target: remote_host.RemoteHost,
    entry: session_listings.SessionEntry,
) -> str:
    """Move a session to another machine of a fleet, with its files and variables."""
    if not entry.epoch:
        raise errors.KernelError(operator_words.NOT_IN_FLEET)
    source, data_id = _require_host(entry), target.connection.status.data_id
    if source.connection is target.connection:
        return operator_words.ALREADY_THERE
    await placed_hosts.move_out(entry.key, source, target)
    placement = await database.placements.put(entry.key, data_id, former_epoch=entry.epoch)
    if placement.data_id != data_id:
        raise errors.KernelError(operator_words.MOVED_ELSEWHERE)
    return operator_words.session_moved(target.connection.address)


def _find_host(hosts: Sequence[remote_host.RemoteHost], name: str) -> remote_host.RemoteHost:
    """Return the host at an address, as `host status` shows it.

    Raises:
        BotError: no host with that address answers.
    """
    for host in hosts:
        if str(host.connection.address) == name:
            return host
    addresses = ", ".join(str(host.connection.address) for host in hosts) or "none"
    safe_name = safe_text.sanitize(name)
    raise errors.BotError(operator_words.no_host(safe_name, addresses))


async def _delete_workspace(workspace: workspaces.Workspace) -> None:
    """Delete the files of a session that has no host.

    Raises:
        KernelError: a bot uses the session.
    """
    async with session_locks.SessionLocks().lock_if_unused(workspace) as is_unused:
        if not is_unused:
            raise errors.KernelError(operator_words.USED_BY_BOT)
        await workspace.remove()


def _require_host(entry: session_listings.SessionEntry) -> remote_host.RemoteHost:
    """Return the host of a session.

    Raises:
        KernelError: no host answers.
    """
    if entry.host is None:
        raise errors.KernelError(operator_words.NO_HOST_ANSWERS)
    return entry.host


def _print_list(entries: Sequence[session_listings.SessionEntry], *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json.dumps({"sessions": [entry.facts() for entry in entries]}) + "\n")
        return
    table = rich.table.Table(*session_listings.COLUMN_TITLES, box=rich.box.SIMPLE_HEAD)
    # Not shortened, as the verbs take it.
    table.columns[0].min_width = max((len(entry.short_name) for entry in entries), default=0)
    for entry in entries:
        # As `Text`, because rich takes words in brackets for markup.
        table.add_row(*map(rich.text.Text, entry.cells()))
    # A file or a pipe has no width, for which rich takes 80 columns.
    width = None if sys.stdout.isatty() else _MAX_COLUMNS
    rich.console.Console(soft_wrap=True, width=width).print(table)
    memory_bytes = sum(entry.status.memory_bytes or 0 for entry in entries if entry.status)
    saved_bytes = sum(entry.saved.bytes for entry in entries if entry.saved)
    sys.stdout.write(operator_words.session_totals(len(entries), memory_bytes, saved_bytes))
