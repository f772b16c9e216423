"""`interpreter-bot doctor`: which walls stand on this machine, and how to get those that do not."""

from __future__ import annotations

import argparse
import sys

from interpreter_bot import settings
from interpreter_bot.doctor import diagnosis, report
from interpreter_bot.kernels import pools


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Examine the machine; 0 if it is fit to run strangers' code, else 1."""
    found = diagnosis.diagnose(config, pools.Pool.open)
    level = diagnosis.level(found)
    say = report.as_json if options.json else report.as_lines
    sys.stdout.write(say(found, level) + "\n")
    return 0 if level in ("full", "standard") else 1
