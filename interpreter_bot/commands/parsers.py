"""A name for what argparse keeps to itself."""

from __future__ import annotations

import argparse
from typing import Protocol


class Commands(Protocol):
    """Where commands are added: what `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser:
        """Add a command; returns the parser of its options."""
