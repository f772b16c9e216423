"""Exit statuses of all commands, besides 0, which says that all went well."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""Something that ran failed."""
REFUSED: Final = 2
"""Nothing was run."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells have it."""
