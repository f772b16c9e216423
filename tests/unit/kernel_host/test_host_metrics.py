"""Probes and figures of a host, over HTTP."""

import socket

import aiohttp
import pytest

from interpreter_bot import errors
from interpreter_bot.kernel_host import host_metrics


class Host:
    is_draining = False

    async def counts(self):
        return {"bots": 2, "kernels": 7, "executions": 1}


@pytest.fixture
def address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


async def told(address, path):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}{path}") as response,
    ):
        return response.status, await response.text()


def figures(text):
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("interpreter_bot_host_"): float(value) for name, value in lines}


async def test_a_host_publishes_how_full_it_is(address):
    async with host_metrics.serving(Host(), address):
        status, text = await told(address, "/metrics")
    found = figures(text)
    assert status == 200
    assert (found["bots"], found["kernels"], found["executions"]) == (2, 7, 1)
    assert 0 < found["used_ratio"] < 1
    assert found["used_ratio"] == pytest.approx(
        1 - found["memory_free_bytes"] / found["memory_bytes"], abs=1e-9
    )
    assert text.count("# TYPE ") == len(found)


async def test_a_draining_host_is_live_but_full_and_not_ready(address):
    host = Host()
    async with host_metrics.serving(host, address):
        assert (await told(address, "/readyz"))[0] == 200
        host.is_draining = True
        assert (await told(address, "/readyz"))[0] == 503
        assert (await told(address, "/livez"))[0] == 200
        found = figures((await told(address, "/metrics"))[1])
    assert (found["used_ratio"], found["draining"]) == (1, 1)


async def test_a_port_in_use_is_an_error_of_settings(address):
    async with host_metrics.serving(Host(), address):
        with pytest.raises(errors.SettingsError, match=r"host\.metrics"):
            async with host_metrics.serving(Host(), address):
                pass
