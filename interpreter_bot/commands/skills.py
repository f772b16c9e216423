"""`interpreter-bot skills`: list the operator's skills, and accept or refuse them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from interpreter_bot import acceptance, errors, settings
from interpreter_bot.commands import exit_statuses
from interpreter_bot.skills import accepted_skills
from interpreter_bot.text import quantities
from interpreter_bot.wording import operator_words


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List all, or change which are used; return 0 if all are used or the change was made, else 1.

    Raises:
        BotError: one cannot be accepted or refused.
    """
    skills = accepted_skills.AcceptedSkills(config.skills.directories, config.paths.data)
    if options.verb == "list":
        statuses = skills.refresh()
        sys.stdout.write(
            "".join(f"{line}\n" for status in statuses for line in _describe(status))
            or operator_words.NO_SKILLS
        )
        is_fine = all(status.standing is acceptance.Standing.ON for status in statuses)
        return 0 if is_fine else exit_statuses.FAILED
    if not options.names:
        raise errors.SettingsError(operator_words.name_skills(options.verb))
    for argument in options.names:
        name, _, digest = argument.partition("@")
        if options.verb == "accept":
            skill = skills.accept(name, digest)
            sys.stdout.write(operator_words.skill_accepted(name, skill.digest))
        else:
            skills.refuse(name)
            sys.stdout.write(operator_words.skill_refused(name))
    return 0


def _describe(status: accepted_skills.SkillStatus) -> Iterator[str]:
    skill = status.skill
    if skill is None:
        yield f"{status.name!r}  {status.standing}  {status.reason}"
        return
    author = operator_words.skill_author(skill.author) if skill.author else ""
    digest = skill.digest[: acceptance.DIGEST_CHARACTERS]
    files = quantities.count(len(skill.files), "file")
    yield f"{skill.name}@{digest}  {status.standing}  {files}{author}"
    yield f"    {skill.description}"
    if skill.modules:
        yield operator_words.skill_modules(skill.modules)
    if status.changes:
        yield operator_words.changed_files(status.changes)
