"""Supervised connections: whether they can be had is found by trying, and doors close."""

import socket
import subprocess
import sys

import pytest

from interpreter_bot.guest import control_messages, supervised_connections

SCRIPT = """
import struct, sys
from interpreter_bot.guest import supervised_connections, syscalls
allow = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
if sys.argv[1:]:
    syscalls.forbid_new_privileges()
    listener = syscalls.install_filter(allow, is_supervised=True)
print(supervised_connections.find_refusal(0))
"""


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ([], ""),
        (["supervised"], "connections cannot be supervised (Device or resource busy)"),
    ],
)
def test_what_is_supervised_already_cannot_be(arguments, refusal):
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == refusal


def test_a_door_is_shut_when_the_bot_leaves_a_connection_on_the_way():
    channel, bot = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door = supervised_connections.Door(channel)
    with channel, socket.socket() as endpoint:
        control_messages.send(bot, control_messages.AcceptConnection())
        assert door.can_accept
        door.give_connection(endpoint)
        bot.close()
        assert not door.update()
        assert not door.can_accept
