"""`doctor`: diagnose this machine and print the findings, as lines or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Protocol

from interpreter_bot import settings
from interpreter_bot.doctor import diagnosis
from interpreter_bot.kernels import pools


class Finding(Protocol):
    """One line of the report; see `diagnosis.Finding`."""

    @property
    def name(self) -> str:
        """Name of a wall, a limit, or another requirement."""

    @property
    def is_active(self) -> bool:
        """Whether it holds."""

    @property
    def consequence(self) -> str:
        """What is lost without it."""

    @property
    def fix(self) -> str:
        """How to get it."""

    @property
    def detail(self) -> str:
        """What was seen."""


def as_lines(findings: Sequence[Finding], level: str) -> str:
    """Write one line per finding, two more where something is missing, and the level last."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        sign = "yes" if finding.is_active else "NO"
        lines.append(f"{finding.name:<{width}}  {sign:<3}  {_line(finding.detail)}".rstrip())
        if not finding.is_active:
            rest = (finding.consequence, finding.fix)
            lines += [f"{'':<{width}}       {_line(text)}" for text in rest if text]
    return "\n".join([*lines, f"level: {level}"])


def as_json(findings: Sequence[Finding], level: str) -> str:
    """Write all findings as one JSON object on one line."""
    rows = [
        {
            "name": finding.name,
            "active": finding.is_active,
            "detail": finding.detail,
            "consequence": finding.consequence,
            "fix": finding.fix,
        }
        for finding in findings
    ]
    return json.dumps({"level": level, "findings": rows})


def _line(text: str) -> str:
    return " ".join(text.split())


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Diagnose the machine; 0 if it is fit to run strangers' code, else 1."""
    found = diagnosis.diagnose(config, pools.Pool.open)
    level = diagnosis.level(found)
    say = as_json if options.json else as_lines
    sys.stdout.write(say(found, level) + "\n")
    return 0 if level in ("full", "standard") else 1
