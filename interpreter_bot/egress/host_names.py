"""Normalization of host names that code and settings use, so that no address passes as a name.

Resolvers read `127.1`, `0x7f.1`, `2130706433` and digits of other scripts as addresses. None of
these has a last label of letters, so none passes.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import idna

from interpreter_bot import errors
from interpreter_bot.wording import network_words

_MAX_CHARACTERS: Final = 253
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_LAST_LABEL: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_WILDCARD: Final = "*."
# Anybody can get a name below these.
_SHARED_DOMAINS: Final = {
    *("amazonaws.com", "appspot.com", "azureedge.net", "azurewebsites.net", "cloudapp.net"),
    *("cloudfront.net", "duckdns.org", "firebaseapp.com", "fly.dev", "github.io", "gitlab.io"),
    *("githubusercontent.com", "herokuapp.com", "netlify.app", "ngrok.app", "ngrok.io"),
    *("ngrok-free.app", "nip.io", "onrender.com", "pages.dev", "run.app", "sslip.io"),
    *("trycloudflare.com", "vercel.app", "web.app", "windows.net", "workers.dev"),
}
_SECOND_LEVELS: Final = {
    *("ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "ltd", "mil", "ne", "net", "nom"),
    *("or", "org"),
}


class NameRefusedError(errors.BotError):
    """That is not the name of a host."""


def normalized(host: str) -> str:
    """Return a host's name or address in its normal form.

    Raises:
        NameRefusedError: it is neither.
    """
    if (address := literal(host)) is not None:
        # Versions of Python write IPv4 addresses within IPv6 differently.
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return f"::ffff:{mapped}" if mapped else str(address)
    try:
        name = host if host.isascii() else idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise NameRefusedError from error
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    is_name = len(name) <= _MAX_CHARACTERS and all(map(_LABEL.fullmatch, labels))
    if not is_name or not _LAST_LABEL.fullmatch(labels[-1]):
        raise NameRefusedError
    return name


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is written as; None for a name."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return None if "%" in bare else ipaddress.ip_address(bare)
    except ValueError:
        return None


def pattern(host: str) -> str:
    """Return a host of the settings in normal form: a name, an address, or `*.` and a name.

    Raises:
        SettingsError: it cannot be used; the sentence says why.
    """
    is_wildcard = host.startswith(_WILDCARD)
    try:
        name = normalized(host.removeprefix(_WILDCARD))
    except NameRefusedError as error:
        raise errors.SettingsError(network_words.not_a_host(host)) from error
    labels = name.split(".")
    is_country = len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVELS
    is_broad = len(labels) < 2 or is_country or name in _SHARED_DOMAINS or literal(name) is not None
    if is_wildcard and is_broad:
        raise errors.SettingsError(network_words.too_broad(host))
    return _WILDCARD + name if is_wildcard else name


def matches(host: str, pattern: str) -> bool:
    """Whether a normalized host matches a pattern."""
    if not pattern.startswith(_WILDCARD):
        return host == pattern
    # Names with an underscore are allowed only if they are listed in full.
    return host.endswith(pattern[1:]) and len(host) >= len(pattern) and "_" not in host
