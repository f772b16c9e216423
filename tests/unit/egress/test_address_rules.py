"""Which addresses may be dialled, in every way of writing them."""

import socket

import pytest

from interpreter_bot import errors
from interpreter_bot.egress import address_rules

PUBLIC = ("1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
PRIVATE = (
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fc00::1", "fd12::1"),
    *("::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::", "fec0::1"),
)
NEVER = (
    *("0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "fe80::1"),
    *("ff02::1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "::ffff:0:169.254.1.1"),
    *("::169.254.169.254", "fe80::1%lo", "localhost", "127.1", "2130706433", ""),
)
LOOPBACK = (
    *("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
    "::127.0.0.1",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address):
    assert address_rules.is_allowed(address)


@pytest.mark.parametrize("address", PRIVATE + LOOPBACK + NEVER)
def test_other_addresses_are_refused(address):
    assert not address_rules.is_allowed(address)


@pytest.mark.parametrize("address", NEVER + LOOPBACK)
def test_no_setting_allows_reserved_addresses(address):
    assert not address_rules.is_allowed(
        address, address_rules.parse_networks(["0.0.0.0/0", "::/0"])
    )


def test_a_listed_private_address_is_allowed():
    listed = address_rules.parse_networks(["10.0.0.0/16"])
    assert address_rules.is_allowed("10.0.3.4", listed)
    assert address_rules.is_allowed("::ffff:10.0.3.4", listed)
    assert not address_rules.is_allowed("10.1.0.1", listed)
    assert not address_rules.is_allowed("64:ff9b::a01:1", listed)


def test_an_address_of_this_machine_has_to_be_listed_by_itself():
    assert address_rules.is_allowed("127.0.0.1", address_rules.parse_networks(["127.0.0.1"]))
    assert not address_rules.is_allowed("127.0.0.2", address_rules.parse_networks(["127.0.0.1"]))
    assert not address_rules.is_allowed("127.0.0.1", address_rules.parse_networks(["127.0.0.0/8"]))
    found = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None)}
    for own in found:
        assert not address_rules.is_allowed(
            own, address_rules.parse_networks(["0.0.0.0/0", "::/0"])
        )


def test_an_invalid_network_is_refused_at_the_start():
    with pytest.raises(errors.SettingsError, match="not an address"):
        address_rules.parse_networks(["10.0.0.1/8"])
