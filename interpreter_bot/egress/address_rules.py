"""The addresses that may be dialled: public ones, and those that a rule names.

`ipaddress.is_global` alone misses several IPv6 forms of private IPv4 addresses.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors
from interpreter_bot.wording import network_words

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Link-local addresses, and others at which clouds serve their machines' credentials.
_RESERVED_NETWORKS: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        *("fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128"),
        *("fd00:42::42/128", "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128"),
    )
)
# Not addresses of single hosts.
_NON_HOST_NETWORKS: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8")
)
# IPv6 networks whose last 32 bits are an address of IPv4.
_NETWORKS_ENDING_IN_IPV4: Final = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
)
_SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")
_SITE_LOCAL: Final = ipaddress.IPv6Network("fec0::/10")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read addresses and networks of the settings.

    Raises:
        SettingsError: a text is neither.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise errors.SettingsError(network_words.not_an_address(text)) from error
    return tuple(networks)


def is_reserved(address: str) -> bool:
    """Return whether an address is link-local, or serves the credentials of a cloud."""
    forms = _forms(ipaddress.ip_address(address))
    return any(form in network for form in forms for network in _RESERVED_NETWORKS)


def is_allowed(address: str, allowed_networks: Sequence[Network] = ()) -> bool:
    """Return whether an address may be dialled, because it is public or in `allowed_networks`.

    This machine's own addresses have to be listed one by one, not as part of a network.
    """
    try:
        forms = list(_forms(ipaddress.ip_address(address)))
    except ValueError:
        return False
    return all(_is_form_allowed(form, allowed_networks) for form in forms)


def _is_form_allowed(form: Address, allowed_networks: Sequence[Network]) -> bool:
    listed_networks = [network for network in allowed_networks if form in network]
    # No setting allows these.
    if any(form in network for network in (*_RESERVED_NETWORKS, *_NON_HOST_NETWORKS)):
        return False
    if form.is_loopback or _is_own_address(form):
        return any(network.num_addresses == 1 for network in listed_networks)
    is_special_use = form in _SITE_LOCAL or form in _LOCAL_NAT64
    return bool(listed_networks) or (
        form.is_global and not form.is_multicast and not is_special_use
    )


def _forms(address: Address) -> Iterator[Address]:
    """Yield an address and, if it is an IPv6 form of an IPv4 address, that one too."""
    if isinstance(address, ipaddress.IPv6Address):
        number = int(address)
        if address in _SIX_TO_FOUR:
            yield ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF)
        if number > 1 and any(address in network for network in _NETWORKS_ENDING_IN_IPV4):
            ipv4_address = ipaddress.IPv4Address(number & 0xFFFFFFFF)
            yield ipv4_address
            if address.ipv4_mapped is not None:
                return
    yield address


def _is_own_address(address: Address) -> bool:
    """Return whether an address belongs to this machine, by trying to bind to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
