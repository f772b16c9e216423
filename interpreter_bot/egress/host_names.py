"""Normalization of host names of code and settings, so that no address passes as a name.

Resolvers take `127.1`, `0x7f.1`, `2130706433` and digits of other scripts as addresses. These are
refused, because the last label of a name has to begin with a letter.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import idna

from interpreter_bot import errors
from interpreter_bot.wording import network_words

_MAX_CHARACTERS: Final = 253
_LABEL_PATTERN: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_LAST_LABEL_PATTERN: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_WILDCARD: Final = "*."
# Anybody can register a name below these domains.
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
    """A text is not the name of a host."""


def normalize(host: str) -> str:
    """Return a host's name or address in normal form.

    Raises:
        NameRefusedError: it is neither.
    """
    if (address := parse_address(host)) is not None:
        # Versions of Python differ in how they write IPv4-mapped addresses.
        mapped_address = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return f"::ffff:{mapped_address}" if mapped_address else str(address)
    try:
        name = host if host.isascii() else idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise NameRefusedError from error
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    is_name = len(name) <= _MAX_CHARACTERS and all(map(_LABEL_PATTERN.fullmatch, labels))
    if not is_name or not _LAST_LABEL_PATTERN.fullmatch(labels[-1]):
        raise NameRefusedError
    return name


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address if a host is written as one; None for a name."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def normalize_pattern(host: str) -> str:
    """Return a host of the settings in normal form: a name, an address, or `*.` and a name.

    Raises:
        SettingsError: it cannot be used; the sentence says why.
    """
    is_wildcard = host.startswith(_WILDCARD)
    try:
        name = normalize(host.removeprefix(_WILDCARD))
    except NameRefusedError as error:
        raise errors.SettingsError(network_words.not_a_host(host)) from error
    labels = name.split(".")
    is_country_domain = len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVELS
    is_broad = (
        len(labels) < 2
        or is_country_domain
        or name in _SHARED_DOMAINS
        or parse_address(name) is not None
    )
    if is_wildcard and is_broad:
        raise errors.SettingsError(network_words.too_broad(host))
    return _WILDCARD + name if is_wildcard else name


def matches(host: str, pattern: str) -> bool:
    """Return whether a normalized host matches a pattern."""
    if not pattern.startswith(_WILDCARD):
        return host == pattern
    # Names with an underscore are allowed only if they are listed in full.
    return host.endswith(pattern[1:]) and len(host) >= len(pattern) and "_" not in host
