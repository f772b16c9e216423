"""`interpreter-bot libraries`: install what code may import, or update it."""

from __future__ import annotations

import argparse
import sys

from interpreter_bot import settings
from interpreter_bot.kernels.libraries import kernel_environment


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Make the environment, and wait until all of it is ready.

    Raises:
        KernelStartError: it cannot be made.
    """
    kernel_environment.install(config, sys.stderr.write, groups=options.groups)
    return 0
