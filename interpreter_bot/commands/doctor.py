"""`doctor`: diagnose this machine and print the findings, as lines or as JSON."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Sequence
from typing import Final

from interpreter_bot import settings
from interpreter_bot.doctor import diagnosis

_SIGN_BY_RESULT: Final = {True: "yes", False: "NO", None: "-"}


def format_lines(findings: Sequence[diagnosis.Finding], level: str) -> str:
    """Write a line per finding, up to two more below a failed one, and the level last."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        sign = _SIGN_BY_RESULT[finding.is_active]
        lines.append(f"{finding.name:<{width}}  {sign:<3}  {_join_lines(finding.detail)}".rstrip())
        if finding.is_active is False:
            advice = (finding.consequence, finding.fix)
            lines += [f"{'':<{width}}       {_join_lines(text)}" for text in advice if text]
    return "\n".join([*lines, f"level: {level}"])


def format_json(findings: Sequence[diagnosis.Finding], level: str) -> str:
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


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Diagnose the machine; return 0 if it can safely run strangers' code, else 1."""
    findings = diagnosis.diagnose(config)
    if config.connections or config.package_index.url or config.host.fleet:
        # Imported here, as most machines need none of it.
        from interpreter_bot.app import execution_startup
        from interpreter_bot.doctor import configured_services

        fleet = functools.partial(execution_startup.find_fleet_addresses, config)
        findings += configured_services.check(
            config, os.environ, fleet if config.host.fleet else None
        )
    from interpreter_bot import stored_credentials
    from interpreter_bot.doctor import chat_tokens, model_trials
    from interpreter_bot.sessions import model_setup

    stored_variables = stored_credentials.StoredCredentials(config).load()
    findings += chat_tokens.check(stored_credentials.with_stored_tokens(config, stored_variables))
    findings += model_trials.check(
        config, model_setup.add_stored_models(os.environ, stored_variables)
    )
    level = diagnosis.level(findings)
    write_report = format_json if options.json else format_lines
    sys.stdout.write(write_report(findings, level) + "\n")
    return 1 if level == "none" else 0
