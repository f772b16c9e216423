"""The embedded model's life, with a process that stands in for the engine."""

import asyncio
import contextlib
import json
import os
import pathlib
import signal

import pytest

from interpreter_bot import settings
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import catalogues, retries
from interpreter_bot.agent.llms.embedded import model_files, on_demand_model
from tests.fakes.publishers import ENGINE
from tests.unit.agent import scripts

PROMPT = chat_messages.Prompt(system="s", messages=(chat_messages.UserMessage("hello"),))


@pytest.fixture
def model(tmp_path):
    """Write a model that plays something."""

    def write(**play):
        path = tmp_path / "own.gguf"
        path.write_bytes(b"GGUF" + json.dumps({**play, "notes": str(tmp_path / "notes")}).encode())
        return path

    return write


@pytest.fixture
def notes(tmp_path):
    """What the processes were started with, one after the other."""
    return lambda: [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]


def opened(path, directory, **chosen):
    local = settings.EmbeddedModel(model_path=path, **chosen)
    return on_demand_model.OnDemandModel.open(local, directory, script=ENGINE)


@contextlib.asynccontextmanager
async def catalogued(local):
    patience = settings.Patience()
    catalogue = catalogues.Catalogue(
        [local.model], keys={}, patience=patience, servers={local.model.title: local}
    )
    try:
        yield await catalogue.open_llm()
    finally:
        await catalogue.close()


def seen_of(pid):
    """What anybody of the same user can read of a process."""
    place = pathlib.Path(f"/proc/{pid}")
    return (place / "environ").read_bytes() + (place / "cmdline").read_bytes()


async def gone(pid):
    async with asyncio.timeout(30):
        while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)


async def test_it_is_started_when_it_is_first_asked_and_answers(model, tmp_path, notes):
    path = model(says="I am small.")
    observer = scripts.Observer()
    async with opened(path, tmp_path) as local, catalogued(local) as llm:
        assert local.unavailable_reason == ""
        assert not (tmp_path / "notes").exists()
        reply = await llm.reply(PROMPT, emit=observer.emit)
        assert reply.text == "I am small."
        await llm.reply(PROMPT, emit=observer.emit)
    assert observer.contents("progress")[-2:] == [("Starting the demo model…", None), ("", None)]
    (started,) = notes()
    assert started["configuration"]["context_tokens"] == local.model.context_tokens == 8192
    await gone(started["pid"])


async def test_a_proxy_of_the_environment_does_not_stand_between(model, tmp_path, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with opened(model(), tmp_path) as local, catalogued(local) as llm:
        assert (await llm.reply(PROMPT, emit=scripts.Observer().emit)).text == "Hello."


async def test_its_process_knows_no_secret_and_its_key_stands_nowhere(
    model, tmp_path, notes, monkeypatch
):
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    async with opened(model(), tmp_path) as local:
        address = await local.ensure_started()
        seen = seen_of(notes()[0]["pid"])
    assert b"xoxb" not in seen
    assert b"PYTHONPATH" not in seen
    assert len(address.api_key) >= 32
    assert address.api_key.encode() not in seen
    assert address.api_key not in repr(address)


async def test_however_many_ask_at_once_one_process_is_started(model, tmp_path, notes):
    async with opened(model(), tmp_path) as local:
        addresses = await asyncio.gather(*(local.ensure_started() for _ in range(10)))
    assert len(set(addresses)) == len(notes()) == 1


async def test_one_who_stops_waiting_takes_nothing_from_the_others(model, tmp_path, notes):
    async with opened(model(), tmp_path) as local:
        first = asyncio.create_task(local.ensure_started())
        second = asyncio.create_task(local.ensure_started())
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()
    assert len(notes()) == 1


async def test_a_server_that_runs_is_there_at_once(model, tmp_path):
    told = []
    async with opened(model(), tmp_path) as local:
        await local.ensure_started()
        await local.ensure_started(progress=lambda *news: told.append(news))
    assert told == []


async def test_a_process_that_dies_is_started_again_once(model, tmp_path, notes):
    async with opened(model(), tmp_path) as local, catalogued(local) as llm:
        for _ in range(2):
            await llm.reply(PROMPT, emit=scripts.Observer().emit)
            os.kill(notes()[-1]["pid"], signal.SIGKILL)
            await gone(notes()[-1]["pid"])
        for _ in range(2):
            with pytest.raises(model_errors.ModelError, match="keeps crashing"):
                await llm.reply(PROMPT, emit=scripts.Observer().emit)
        assert local.unavailable_reason
    assert len(notes()) == 2


async def test_deaths_long_ago_are_forgotten(model, tmp_path, notes, monkeypatch):
    monkeypatch.setattr(on_demand_model, "_CRASH_WINDOW_SECONDS", 0.0)
    async with opened(model(), tmp_path) as local:
        for _ in range(3):
            await local.ensure_started()
            os.kill(notes()[-1]["pid"], signal.SIGKILL)
            await gone(notes()[-1]["pid"])
            await asyncio.sleep(0.05)
        await local.ensure_started()
    assert len(notes()) == 4


@pytest.mark.parametrize(
    ("play", "sentence"),
    [
        ({"fails": "RuntimeError: no"}, "could not be started"),
        ({"kills": signal.SIGILL}, "AVX2"),
        ({"kills": signal.SIGKILL}, "memory"),
    ],
)
async def test_what_does_not_start_says_so_in_a_sentence(model, tmp_path, caplog, play, sentence):
    async with opened(model(**play), tmp_path) as local:
        with pytest.raises(model_files.NoLocalModelError, match=sentence):
            await local.ensure_started()
        assert sentence in local.unavailable_reason
    if "fails" in play:
        assert "the engine says why" in caplog.text


async def test_what_failed_is_tried_again(model, tmp_path):
    async with opened(model(fails="no"), tmp_path) as local:
        with pytest.raises(model_files.NoLocalModelError):
            await local.ensure_started()
        model(says="now")
        await local.ensure_started()
        assert local.unavailable_reason == ""


async def test_a_failure_that_nobody_waits_for_disturbs_nobody(model, tmp_path):
    async with opened(model(fails="no"), tmp_path) as local:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(local.ensure_started(), 0.001)
        async with asyncio.timeout(30):
            while not local.unavailable_reason:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_closing_ends_a_start_that_hangs(model, tmp_path, notes):
    async with asyncio.timeout(30):
        async with opened(model(hangs=True), tmp_path) as local:
            waiting = asyncio.create_task(local.ensure_started())
            while not ((tmp_path / "notes").exists() and notes()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(model_files.NoLocalModelError, match="being stopped"):
            await waiting
    await gone(notes()[0]["pid"])
    with pytest.raises(model_files.NoLocalModelError, match="being stopped"):
        await local.ensure_started()


async def test_a_start_that_takes_too_long_is_given_up(model, tmp_path, notes, monkeypatch):
    from interpreter_bot.agent.llms.embedded import server_process

    with pytest.raises(model_files.NoLocalModelError, match="in time"):
        await server_process.ServerProcess.start(
            model(hangs=True), alias="m", context_tokens=1, script=ENGINE, timeout_seconds=0.5
        )


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4"])
async def test_a_path_that_leads_to_no_model_is_refused_before_anything_starts(tmp_path, content):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    async with opened(path, tmp_path) as local:
        assert str(path) in local.unavailable_reason
        with pytest.raises(model_files.NoLocalModelError, match=r"model\.gguf"):
            await local.ensure_started()


async def test_a_file_that_only_bears_the_official_name_is_refused(tmp_path):
    path = tmp_path / model_files.QWEN.file_name
    path.write_bytes(b"GGUF{}")
    async with opened(path, tmp_path) as local:
        assert local.licence == model_files.QWEN.licence
        with pytest.raises(
            model_files.NoLocalModelError, match="has the name of the official demo model"
        ):
            await local.ensure_started()


async def test_what_the_settings_switch_off_is_off(model, tmp_path):
    async with opened(model(), tmp_path, enabled=False) as local:
        assert "local.enabled" in local.unavailable_reason
        with pytest.raises(model_files.NoLocalModelError, match="switched off"):
            await local.ensure_started()
    assert not (tmp_path / "notes").exists()


async def test_without_the_extra_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(on_demand_model.importlib.util, "find_spec", lambda name: None)
    async with on_demand_model.OnDemandModel.open(settings.EmbeddedModel(), tmp_path) as local:
        assert ".[local]" in local.unavailable_reason


async def test_it_shows_itself_as_a_demo(tmp_path):
    async with on_demand_model.OnDemandModel.open(settings.EmbeddedModel(), tmp_path) as local:
        assert local.model.title == "Qwen2.5-Coder 1.5B (demo)"
        assert local.model.protocol == "fenced"
        assert "Apache License 2.0" in local.licence


async def test_a_model_is_reached_where_its_server_now_is():
    class Server:
        count = 0

        async def ensure_started(self, *, progress):
            self.count += 1
            return retries.ServerAddress(f"http://127.0.0.1:{self.count // 2}", "key")

    class Llm:
        async def reply(self, prompt, *, emit):
            return chat_messages.ModelReply(text="ok")

    met = []
    llm = retries.OnDemandServerLlm(Server(), lambda address: met.append(address.base_url) or Llm())
    for _ in range(4):
        await llm.reply(PROMPT, emit=scripts.Observer().emit)
    assert met == ["http://127.0.0.1:0", "http://127.0.0.1:1", "http://127.0.0.1:2"]
