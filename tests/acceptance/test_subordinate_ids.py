"""A plain user who was granted ids to give away: what the command line makes of them."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests import unprivileged

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can grant ids, in a copy of /etc"),
    pytest.mark.skipif(not shutil.which("newuidmap"), reason="Debian's uidmap is not installed"),
]


def as_granted(*arguments):
    command = ("-m", "tests.unprivileged", "--subordinate", sys.executable, *arguments)
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
    return done.stdout, done.stderr


def test_each_session_has_an_id_of_its_own_and_the_doctor_says_which():
    out, told = as_granted("-m", "interpreter_bot", "doctor", "--json")

    found = {one["name"]: one for one in json.loads(out)["findings"]}
    first, count = map(int, unprivileged.GRANTED_IDS.split(":"))
    ids = {int(word) for word in found["user id per session"]["detail"].split() if word.isdigit()}
    assert found["user id per session"]["active"], told
    assert len(ids) == 2
    assert ids <= set(range(first, first + count))
    assert found["user namespace"]["active"]
    assert found["workspace"]["active"]


def test_ids_are_left_alone_where_the_settings_say_so():
    told = (
        "from interpreter_bot import settings\n"
        "from interpreter_bot.kernels.provisioning import subordinate_ids\n"
        "for wanted in ('off', 'auto'):\n"
        "    print(subordinate_ids.enter(settings.Sandbox(subordinate_ids=wanted)))\n"
    )
    out, _ = as_granted("-c", told)

    assert out.split() == ["0", "65536"]
