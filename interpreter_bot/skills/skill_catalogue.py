"""The catalogue of skills for models. Pure.

Descriptions come from files: each is escaped, so that it cannot end the list around it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from interpreter_bot.skills import skill_files

MOUNT_POINT: Final = "/skills"
"""The directory of skills in kernels; `guest.rootfs` mounts it there."""
_INTRODUCTION: Final = (
    f"Your operator has written skills: instructions and files, read-only in {MOUNT_POINT} of the "
    "kernel. When a task fits a skill's description, first print its SKILL.md in code, "
    "and follow it. Their modules can be imported."
)
_FURTHER_SKILLS: Final = "Further ones, in {mounted} too: {names}."


def write(skills: Sequence[skill_files.Skill], *, max_characters: int) -> str:
    """Write the catalogue; skills beyond `max_characters` are only named."""
    if not skills:
        return ""
    entries: list[str] = []
    names: list[str] = []
    for skill in skills:
        entry = _entry(skill)
        max_characters -= len(entry)
        if max_characters >= 0:
            entries.append(entry)
        else:
            names.append(skill.name)
    catalogue = "\n".join(["<available_skills>", *entries, "</available_skills>"])
    further = _FURTHER_SKILLS.format(mounted=MOUNT_POINT, names=", ".join(names)) if names else ""
    return "\n".join(filter(None, (_INTRODUCTION, catalogue, further)))


def _entry(skill: skill_files.Skill) -> str:
    modules = "".join(f"<module>{name}</module>" for name in skill.modules)
    return (
        f"<skill><name>{skill.name}</name>"
        f"<description>{html.escape(skill.description, quote=False)}</description>"
        f"<location>{MOUNT_POINT}/{skill.name}/{skill_files.HEAD_FILE}</location>{modules}</skill>"
    )
