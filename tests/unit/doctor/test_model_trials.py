"""What the doctor says of language models."""

import asyncio

from interpreter_bot import settings
from interpreter_bot.doctor import model_trials
from tests.fakes import openai_server


async def rows(environment, **groups):
    config = settings.Settings(**groups)
    findings = await asyncio.to_thread(model_trials.check, config, environment)
    return {finding.name: finding for finding in findings}


async def test_each_model_is_asked_and_its_refusal_told():
    async with openai_server.Server([openai_server.text("OK")], models=("good",)) as server:
        models = [settings.Model(name=name, base_url=server.base_url) for name in ("good", "gone")]
        seen = await rows({"OPENAI_API_KEY": server.api_key}, models=tuple(models))
        refused = await rows({"OPENAI_API_KEY": "sk-wrong"}, models=(models[0],))
    assert seen["model good"].is_active
    assert not seen["model gone"].is_active
    assert 'has no model called "gone"' in seen["model gone"].detail
    assert not refused["model good"].is_active
    assert "refused the API key" in refused["model good"].detail
    assert "sk-wrong" not in str(refused)


async def test_a_server_that_is_away_has_a_row_of_its_own():
    seen = await rows({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    (finding,) = seen.values()
    assert finding.name == "model at 127.0.0.1:9"
    assert "cannot be reached" in finding.detail


async def test_no_model_at_all_is_said_with_the_ways_to_one():
    finding = (await rows({}))["model"]
    assert not finding.is_active
    assert "OPENAI_API_KEY" in finding.fix


async def test_no_answer_of_the_demo_model_is_promised_if_it_is_off():
    finding = (await rows({}, local=settings.EmbeddedModel(enabled=False)))["model"]
    assert not finding.is_active
    assert "local.enabled" in finding.detail
    assert "demo model answers" not in finding.consequence
    assert "OPENAI_API_KEY" in finding.fix
