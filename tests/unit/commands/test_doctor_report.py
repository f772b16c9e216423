"""The doctor's report."""

import json

from interpreter_bot.commands import doctor
from interpreter_bot.doctor import diagnosis

WALL = diagnosis.Finding(
    name="network", is_active=True, consequence="Code talks.", fix="Do this.", detail="lo\nonly"
)
HOLE = diagnosis.Finding(
    name="cpu", is_active=False, consequence="Code hogs.", fix="Delegate cgroups.", detail=""
)


DIFFERENCE = diagnosis.Finding(
    name="doors", is_active=None, consequence="None.", fix="No way.", detail="not here"
)


def test_a_wall_is_a_line_and_a_hole_says_what_to_do():
    assert doctor.format_lines([WALL, HOLE, DIFFERENCE], "container").splitlines() == [
        "network  yes  lo only",
        "cpu      NO",
        "              Code hogs.",
        "              Delegate cgroups.",
        "doors    -    not here",
        "level: container",
    ]


def test_programs_get_everything_in_one_line():
    text = doctor.format_json([WALL, HOLE, DIFFERENCE], "container")
    assert "\n" not in text
    report = json.loads(text)
    assert report["level"] == "container"
    assert [row["active"] for row in report["findings"]] == [True, False, None]
    assert report["findings"][1]["fix"] == "Delegate cgroups."
