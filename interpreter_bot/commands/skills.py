"""`interpreter-bot skills`: list the operator's skills, and accept or refuse them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from interpreter_bot import errors, settings
from interpreter_bot.skills import accepted_skills
from interpreter_bot.text import quantities

_FAILED = 1
_DIGEST_CHARACTERS = 12
_NONE = "There are no skills: skills.directories lists none, or they are empty.\n"


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """List all, or change which are used; 0 if every one that was named could be, else 1.

    Raises:
        BotError: one cannot be accepted or refused.
    """
    skills = accepted_skills.AcceptedSkills(config.skills.directories, config.paths.data)
    if options.verb == "list":
        statuses = skills.refresh()
        sys.stdout.write("".join(f"{line}\n" for one in statuses for line in _lines(one)) or _NONE)
        is_fine = all(one.standing is accepted_skills.Standing.ON for one in statuses)
        return 0 if is_fine else _FAILED
    if not options.names:
        what = "NAME@DIGEST, as listed" if options.verb == "accept" else "NAME"
        raise errors.SettingsError(f"Name them: interpreter-bot skills {options.verb} {what}.")
    for told in options.names:
        name, _, digest = told.partition("@")
        if options.verb == "accept":
            if len(digest) < _DIGEST_CHARACTERS:
                # It may have been changed since somebody read it.
                raise errors.SettingsError(
                    f"Name the version of {name} too: {name}@DIGEST, as listed."
                )
            skill = skills.accept(name, digest)
            sys.stdout.write(f"{name} is on, as {skill.digest}.\n")
        else:
            skills.refuse(name)
            sys.stdout.write(f"{name} is off.\n")
    return 0


def _lines(status: accepted_skills.SkillStatus) -> Iterator[str]:
    skill = status.skill
    if skill is None:
        yield f"{status.name!r}  {status.standing}  {status.reason}"
        return
    author = f"  by {skill.author}" if skill.author else ""
    digest = skill.digest[:_DIGEST_CHARACTERS]
    files = quantities.count(len(skill.files), "file")
    yield f"{skill.name}@{digest}  {status.standing}  {files}{author}"
    yield f"    {skill.description}"
    if skill.modules:
        yield f"    can be imported: {', '.join(skill.modules)}"
    if status.changes:
        yield f"    changed since it was accepted: {', '.join(status.changes)}"
