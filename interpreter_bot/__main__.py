"""`python -m interpreter_bot`: the same as the command `interpreter-bot`."""

from __future__ import annotations

import sys

from interpreter_bot import cli

if __name__ == "__main__":
    sys.exit(cli.main())
