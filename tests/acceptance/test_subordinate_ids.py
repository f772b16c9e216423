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
    pytest.mark.namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can grant ids, in a copy of /etc"),
    pytest.mark.skipif(not shutil.which("newuidmap"), reason="Debian's uidmap is not installed"),
]


def as_granted(*arguments):
    command = ("-m", "tests.unprivileged", "--subordinate", sys.executable, *arguments)
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
    return done.stdout, done.stderr


@pytest.mark.gate
def test_each_session_has_an_id_of_its_own_and_the_doctor_says_which():
    out, told = as_granted("-m", "interpreter_bot", "doctor", "--json")

    found = {one["name"]: one for one in json.loads(out)["findings"]}
    first, count = map(int, unprivileged.SUBORDINATE_ID_RANGE.split(":"))
    ids = {int(word) for word in found["user id per session"]["detail"].split() if word.isdigit()}
    assert found["user id per session"]["active"], told
    assert len(ids) == 2
    assert ids <= set(range(first, first + count))
    assert found["user namespace"]["active"]


_LEAVE = """
import asyncio, json, os, pathlib, subprocess, sys
place = pathlib.Path.home()
paths = {"INTERPRETER_BOT_PATHS__DATA": f"{place}/data"}
paths["INTERPRETER_BOT_PATHS__RUNTIME"] = f"{place}/r"

async def leave():
    from interpreter_bot import settings, values
    from interpreter_bot.app import execution_startup
    from interpreter_bot.hosts import local_host
    from interpreter_bot.kernels.provisioning import subordinate_ids
    config = settings.Settings(
        paths=settings.Paths(data=place / "data", runtime=place / "r"),
        kernels=settings.Kernels(preload=(), spares=0),
        sandbox=settings.Sandbox().with_uids(
            settings.Sandbox().first_uid, subordinate_ids.enter(settings.Sandbox())
        ),
    )
    key = values.SessionKey("slack", "T", "C", "1")
    async with execution_startup.open_database(config) as database:
        await database.sessions.open(key)
    async with local_startup.open_host(config) as host, host.lease(values.format_key(key)) as lease:
        kernel = await lease.kernel()
        code = "import os; os.makedirs('d/e'); open('d/e/f', 'w').close(); os.chmod('d', 0)"
        await kernel.execute(code, execution_id="e", show=print)
        os._exit(0)

if child := os.fork():
    os.waitpid(child, 0)
else:
    asyncio.run(leave())
for words in (["--all", "--json"], ["forget", "--yes", "slack/T/C/1"]):
    given = [sys.executable, "-m", "interpreter_bot", "sessions", *words]
    done = subprocess.run(given, env=os.environ | paths, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]))
left = [*pathlib.Path(place, "data", "workspaces").iterdir()]
print(json.dumps([str(one) for one in left]))
"""


def test_files_of_a_dead_kernel_are_forgotten_by_the_user_who_owns_none_of_them():
    out, told = as_granted("-c", _LEAVE)

    listed, forgotten, left = map(json.loads, out.splitlines())
    assert json.loads(listed[1])["sessions"][0]["state"] == "files", told
    assert (forgotten[0], "files are deleted" in forgotten[1]) == (0, True)
    assert left == []
