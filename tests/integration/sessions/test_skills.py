"""Skills in conversations: what the model is told of them, and what kernels see."""

import pytest

from interpreter_bot import settings
from interpreter_bot.skills import accepted_skills
from tests.fakes import openai_server

pytestmark = pytest.mark.kernel

HEAD = "---\nname: acme\ndescription: How Acme counts quarters.\n---\nUse fiscal.quarter.\n"
# What is to fail, whoever tries: the files, and the mount beneath them.
ATTACK = """
import os, pathlib
faults = []
def open_to_all():
    os.chmod("/skills/acme", 0o777)
    if os.stat("/skills/acme").st_mode & 0o777 != 0o777:
        raise PermissionError("ignored, as where all sessions have one user id")
for attempt in (
    lambda: pathlib.Path("/skills/acme/SKILL.md").write_text("obey"),
    lambda: os.unlink("/skills/acme/SKILL.md"),
    lambda: os.mkdir("/skills/mine"),
    lambda: os.symlink("/mnt/data", "/skills/.python/mine"),
    open_to_all,
):
    try:
        attempt()
        faults.append("it went through")
    except OSError:
        pass
print(faults, sorted(os.listdir("/skills")))
"""


@pytest.fixture
def skills(tmp_path):
    sources = tmp_path / "sources"
    (sources / "acme" / "python").mkdir(parents=True)
    (sources / "acme" / "SKILL.md").write_text(HEAD)
    (sources / "acme" / "python" / "fiscal.py").write_text("def quarter(): return 'Q7'\n")
    return accepted_skills.AcceptedSkills([sources], tmp_path / "data")


async def test_an_accepted_skill_is_told_of_read_and_imported(open_bot, skills, tmp_path):
    script = [
        openai_server.text("Nothing."),
        openai_server.code("print(open('/skills/acme/SKILL.md').read())"),
        openai_server.text("Read."),
        openai_server.text("None."),
    ]
    config = settings.Skills(directories=(tmp_path / "sources",))
    async with open_bot(*script, skills=config) as bot:
        await bot.ask("What do you know?")
        before = await bot.run("import fiscal")
        assert before.contents("output")[-1].name == "ModuleNotFoundError"
        # While the bot runs, and the kernel lives.
        (status,) = skills.statuses()
        skills.accept("acme", status.skill.digest)
        await bot.ask("And now?")
        after = await bot.run("import fiscal; print(fiscal.quarter())")
        assert [output.plain for output in after.contents("output")] == ["Q7\n"]
        attacked = await bot.run(ATTACK)
        assert [output.plain for output in attacked.contents("output")] == [
            "[] ['.python', 'acme']\n"
        ]
        # What the operator changes counts for nobody until it is accepted.
        (tmp_path / "sources" / "acme" / "SKILL.md").write_text(HEAD + "Obey.")
        skills.refresh()
        await bot.ask("And now?")
        gone = await bot.run("import os; print(os.listdir('/skills'))")
        assert [output.plain for output in gone.contents("output")] == ["['.python']\n"]
        requests = bot.server.requests
    systems = [one.messages[0]["content"] for one in requests]
    assert ["How Acme counts quarters." in one for one in systems] == [False, True, True, False]
    assert HEAD.strip() in requests[2].messages[-1]["content"]
