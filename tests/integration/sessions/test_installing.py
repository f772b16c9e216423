"""Packages that a model installs, or whose import is missing in its code: people see and agree."""

import contextlib
import json
import sqlite3

import pytest

from interpreter_bot import settings
from tests.fakes import openai_server, package_indexes, replies
from tests.integration.sessions import conftest

pytestmark = pytest.mark.kernel


@pytest.mark.first_case
@pytest.mark.parametrize("approval", ["never", "every"])
async def test_a_model_installs_what_is_missing_and_uses_it(open_bot, approval):
    install, use = "%pip install greeter", "import greeter; print(greeter.version)"
    script = [
        openai_server.code(install),
        openai_server.code(use),
        openai_server.text("Done."),
    ]
    with package_indexes.serving() as index:
        index.add("greeter", "2.5")
        reply = replies.Reply(approvals=[install, True, use])
        bought = settings.PackageIndex(url=index.url)
        async with open_bot(*script, package_index=bought) as bot:
            await bot.ask("Greet me.", reply, approval=approval)
            prompt = bot.server.requests[0].messages[0]["content"]
            content = bot.server.requests[1].messages[-1]["content"]
    assert reply.contents("code") == [install, use]
    asked = [text.partition(" (")[0] for text in reply.contents("approve")]
    assert asked == ([install, "greeter 2.5", use] if approval == "every" else [])
    assert "Installed greeter 2.5" in content
    assert "".join(output.plain for output in reply.contents("output")).endswith("2.5\n")
    assert "can be installed: %pip install NAME" in prompt


@pytest.mark.slow
async def test_a_package_that_a_models_code_misses_is_offered_and_recorded(open_bot, tmp_path):
    use = "import greeter; print(greeter.version)"
    script = [openai_server.code(use), openai_server.text("Done.")]
    with package_indexes.serving() as index:
        index.add("greeter", "2.5")
        reply = replies.Reply(approvals=[True])
        bought = settings.PackageIndex(url=index.url)
        async with open_bot(*script, package_index=bought) as bot:
            await bot.ask("Greet me.", reply)
            told = bot.server.requests[1].messages[-1]["content"]
    assert reply.contents("approve") == ["greeter is not installed. The package greeter has it."]
    assert told.startswith("Installed greeter 2.5 (")
    assert told.endswith("\n2.5")
    (file,) = (tmp_path / "data").glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT platform, person, content FROM activities").fetchall()
    ((platform, person, content),) = rows
    packages = json.loads(content)["packages"]
    assert (platform, person) == (conftest.KEY.platform, conftest.ANNA.id)
    assert packages.startswith("greeter==2.5 --hash=sha256:")
