"""`interpreter-bot tools`: list the tools of MCP servers, what changed, accept or refuse them."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from interpreter_bot import acceptance, errors, settings
from interpreter_bot.app import execution_startup
from interpreter_bot.commands import exit_statuses
from interpreter_bot.wording import operator_words

if TYPE_CHECKING:
    from interpreter_bot.mcp_servers.definitions import Listing
    from interpreter_bot.mcp_servers.tool_broker import ToolBroker


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List all, or change which are used; return 0 if all are used or the change was made, else 1.

    Raises:
        BotError: a tool cannot be accepted.
    """
    return asyncio.run(_run(config, options))


async def _run(config: settings.Settings, options: argparse.Namespace) -> int:
    async with execution_startup.open_tools(config, os.environ) as broker:
        if broker is None:
            sys.stdout.write(operator_words.NO_TOOL_SERVERS)
            return 0
        if options.verb == "list":
            return await _print_list(config, broker)
        if not options.names:
            raise errors.SettingsError(operator_words.name_server(options.verb))
        for argument in options.names:
            name, _, digest = argument.partition("@")
            if name not in {server.name for server in config.mcp_servers}:
                raise errors.SettingsError(operator_words.no_tool_server(name))
            if options.verb == "accept":
                accepted = broker.definitions.accept(name, digest)
                sys.stdout.write(operator_words.tools_accepted(len(accepted.tools), name))
            else:
                broker.definitions.refuse(name)
                sys.stdout.write(operator_words.tools_refused(name))
    return 0


async def _print_list(config: settings.Settings, broker: ToolBroker) -> int:
    status = 0
    listings = {}
    error_sentences = {}
    for server in config.mcp_servers:
        if server.authorization == "person" and broker.definitions.latest(server.name).tools:
            listings[server.name] = broker.definitions.latest(server.name)
            continue
        try:
            listings[server.name] = await broker.fetch_listing(server.name)
        except errors.BotError as error:
            listings[server.name] = broker.definitions.latest(server.name)
            error_sentences[server.name] = str(error)
    names = {name: list(listing.tools) for name, listing in listings.items()}
    for name, listing in listings.items():
        lines = [*_describe(broker, name, listing=listing, names=names)]
        if name in error_sentences:
            lines.insert(0, f"{name}: {error_sentences[name]} {operator_words.OFFERED_BEFORE}")
        has_unused = any(
            standing != "on" for standing in broker.definitions.usable(name).standings.values()
        )
        if has_unused or name in error_sentences:
            status = exit_statuses.FAILED
        if has_unused and listing.tools:
            digest = listing.digest[: acceptance.DIGEST_CHARACTERS]
            lines.append(operator_words.accept_all(name, digest))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return status


def _describe(
    broker: ToolBroker, name: str, *, listing: Listing, names: dict[str, list[str]]
) -> Iterator[str]:
    """Describe a server: each tool in a line, and below it what is new, changed or suspicious."""
    # Imported here, because it needs the SDK, which may be missing if there are no servers.
    from interpreter_bot.mcp_servers import accepted_definitions, definitions

    accepted = broker.definitions.accepted(name)
    standings = accepted_definitions.compare(accepted, listing).standings
    yield f"{name}  {len(listing.tools)} tools  {listing.digest[: acceptance.DIGEST_CHARACTERS]}"
    if standings[""] != "on":
        yield operator_words.INSTRUCTIONS_CHANGED
        accepted_fields = {"said": accepted.instructions} if accepted.instructions else None
        change = definitions.list_changes(accepted_fields, {"said": listing.instructions})
        yield from (f"      {line}" for line in change)
    for tool, standing in sorted(standings.items()):
        if not tool:
            continue
        yield f"  {tool}  {standing}"
        if standing == "gone":
            continue
        for warning in definitions.find_warnings(name, listing.tools[tool], names):
            yield operator_words.tool_warning(warning)
        if standing != "on":
            change = definitions.list_changes(accepted.tools.get(tool), listing.tools[tool])
            yield from (f"      {line}" for line in change)
    yield from map(operator_words.definition_left_out, listing.omissions)
