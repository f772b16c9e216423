"""Slack, real conversations, real kernels, a scripted model: nothing of ours is a fake here."""

import contextlib
import re

import pytest

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup
from tests.fakes import openai_server
from tests.integration.slack.worlds import connect_platform

pytestmark = pytest.mark.kernel

CSV = re.compile(r"csv_\d+")

SUM = """
import csv
rows = list(csv.DictReader(open('sales.csv')))
total = sum(int(row['amount']) for row in rows)
open('total.txt', 'w').write(str(total))
print('total', total)
"""


@contextlib.asynccontextmanager
async def opened(slack, tmp_path, short_path, *script, groups=None, **more):
    async with openai_server.Server(script) as server:
        bot = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            models=(settings.Model(name="scripted", base_url=server.base_url),),
            **(groups or {}),
        )
        keys = {"OPENAI_API_KEY": server.api_key}
        async with (
            bot_startup.open_service(bot, keys) as service,
            connect_platform(slack, service, **more),
        ):
            yield service, server


async def test_file_question_answer_and_raw_code_in_one_kernel(slack, tmp_path, short_path):
    script = [
        openai_server.code(SUM, "I add it up."),
        openai_server.text("It is **42**: [total](sandbox:/mnt/data/total.txt)"),
    ]
    async with opened(slack, tmp_path, short_path, *script) as (_, server):
        sales = slack.put_file("sales.csv", b"amount\n40\n2\n")
        ts = slack.say("U1", "C1", "<@UBOT> total?", files=[sales])
        [batch] = await slack.until(lambda: slack.world.batches, seconds=30)
        assert [file["name"] for file in batch["files"]] == ["total.txt"]
        assert slack.world.contents[batch["files"][0]["id"]] == b"42"
        answer = slack.answers("C1", ts)[0]
        assert answer["blocks"][0]["text"].startswith("It is **42**: ")
        assert "total 42" not in str(answer)
        slack.click("U1", "C1", answer["ts"], "code")
        [shown] = await slack.until(lambda: slack.world.ephemerals)
        assert "I add it up." in str(shown)
        assert "total 42" in str(shown)
        assert "sales.csv" in str(server.requests[0].messages)
        slack.say("U1", "C1", "<@UBOT> py total + 1", thread=ts)
        await slack.until(
            lambda: [m for m in slack.replies("C1", ts) if "\n43\n" in str(m).replace("\\n", "\n")],
            seconds=30,
        )
        assert "xoxb-" not in str([request.body for request in server.requests])


async def test_people_hear_where_there_is_no_model_and_of_sessions_in_their_home(
    slack, tmp_path, short_path
):
    async with opened(slack, tmp_path, short_path):
        slack.command("U1", "C1", "/py", "1+1")
        await slack.until(
            lambda: "\n2\n" in str(list(slack.world.messages.values())).replace("\\n", "\n"),
            seconds=30,
        )
        slack.open_home("U1")
        view = await slack.until(lambda: slack.world.homes.get("U1"), seconds=10)
        assert "<#C1>" in str(view)


async def test_all_of_a_table_and_what_admins_choose(slack, tmp_path, short_path):
    async with opened(slack, tmp_path, short_path) as (service, _):
        slack.command("U1", "C1", "/py", "import pandas\npandas.DataFrame({'a': range(1000)})")
        [answer] = await slack.until(
            lambda: [m for m in slack.world.messages.values() if CSV.search(str(m))],
            seconds=30,
        )
        key = values.SessionKey("slack", "T1", "C1")
        await slack.until(lambda: not service.is_busy(key))
        slack.click("U2", "C1", answer["ts"], CSV.search(str(answer))[0])
        [batch] = await slack.until(lambda: slack.world.batches, seconds=30)
        data = slack.world.contents[batch["files"][0]["id"]]
        assert data.splitlines()[-1] == b"999,999"
        slack.open_home("UADMIN")
        await slack.until(lambda: slack.world.homes.get("UADMIN"))
        slack.click_home("UADMIN", "home_change")
        [view] = await slack.until(lambda: slack.world.modals)
        slack.submit("UADMIN", view, allowed_people=["U2"], follow_threads="no")
        await slack.until(lambda: "<@U2>" in str(slack.world.homes["UADMIN"]))
        scope = values.Scope("slack", "T1", "C1")
        assert await service.queries.choices(scope) == {
            "allowed_people": ["U2"],
            "follow_threads": False,
        }
        slack.click_home("UADMIN", "home_kill")
        await slack.until(lambda: "An admin ended this session" in str(slack.world.messages))
        assert not (await service.recent("slack", "T1"))[0].has_kernel
