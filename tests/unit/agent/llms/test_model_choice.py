"""Addresses of models that are entered on the page."""

import socket
import threading

import pytest

from interpreter_bot import errors
from interpreter_bot.agent.llms import model_choice

USUAL = (
    "",
    "http://127.0.0.1:11434/v1",
    "http://[::1]/v1",
    "http://10.1.2.3/v1",
    "http://[fd12::1]",
)
RESERVED = (
    *(
        "http://169.254.169.254/v1",
        "http://169.254.7.8",
        "http://[fe80::1]/v1",
        "https://0xa9fea9fe",
    ),
    *("http://2852039166/v1", "http://[::ffff:169.254.169.254]:80/v1", "http://100.100.100.200"),
    *("http://[fd00:ec2::254]/", "  http://169.254.169.254/v1", "http://a@169.254.169.254/v1"),
)


@pytest.mark.parametrize("address", USUAL)
async def test_one_of_this_machine_or_its_network_may_be_entered(address):
    await model_choice.refuse_reserved(address)


@pytest.mark.parametrize("address", RESERVED)
async def test_one_where_clouds_hand_out_credentials_may_not(address):
    with pytest.raises(errors.SettingsError, match="reserved"):
        await model_choice.refuse_reserved(address)


async def test_one_whose_name_is_looked_up_too_slowly_may_not(monkeypatch):
    is_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: is_over.wait(30) and [])
    try:
        with pytest.raises(errors.SettingsError, match="in time"):
            await model_choice.refuse_reserved("http://models.example/v1", lookup_seconds=0.1)
    finally:
        is_over.set()
