"""`interpreter-bot doctor`: which walls stand on this machine, and how to get those that do not."""

from __future__ import annotations

import argparse
import sys

from interpreter_bot import settings
from interpreter_bot.kernels import pools
from interpreter_bot.kernels.provisioning import doctors
from interpreter_bot.platforms.console import findings


def run(bot: settings.Settings, options: argparse.Namespace) -> int:
    """Examine the machine; 0 if it is fit to run strangers' code, else 1."""
    found = doctors.examine(bot, pools.Pool.open)
    level = doctors.level(found)
    say = findings.as_json if options.json else findings.as_lines
    sys.stdout.write(say(found, level) + "\n")
    return 0 if level in ("full", "standard") else 1
