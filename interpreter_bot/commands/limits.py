"""`interpreter-bot limits`: print what one session may use."""

from __future__ import annotations

import argparse
import json
import sys

import rich.box
import rich.console
import rich.table

from interpreter_bot import settings
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.wording import fact_words


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Print the limits in effect."""
    names = fact_words.LIMITS_OF_CODE | fact_words.LIMITS_OF_HOST
    limits: dict[str, float] = {name: getattr(config.limits, name) for name in names}
    if options.json:
        sys.stdout.write(json.dumps(limits) + "\n")
        return 0
    table = rich.table.Table("limit", "value", "what happens at it", box=rich.box.SIMPLE_HEAD)
    for name, value in limits.items():
        table.add_row(*session_facts.describe_limit(name, value))
    rich.console.Console(soft_wrap=True).print(table)
    return 0
