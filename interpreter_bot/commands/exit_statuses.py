"""Exit statuses of all commands, besides 0 for success."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""The command ran, and something failed."""
REFUSED: Final = 2
"""Nothing was run."""
INTERRUPTED: Final = 130
"""Ended by Ctrl-C; shells use the same number."""
