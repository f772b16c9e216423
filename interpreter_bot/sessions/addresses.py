"""The one text for a conversation's key, by which kernels and workspaces are found; and back."""

from __future__ import annotations

import hashlib
import urllib.parse

from interpreter_bot import values


def text(key: values.SessionKey) -> str:
    """Write a key so that no two keys look the same, whatever their parts hold."""
    parts = (key.platform, key.workspace, key.channel, key.thread)
    return "/".join(urllib.parse.quote(part, safe="", errors="surrogatepass") for part in parts)


def cache_key(key: values.SessionKey) -> str:
    """Name a conversation to a model's server, which learns nothing from it."""
    return hashlib.sha256(f"prompt cache of {text(key)}".encode()).hexdigest()[:32]


def key(address: str) -> values.SessionKey:
    """Read what `text` wrote."""
    parts = (urllib.parse.unquote(part, errors="surrogatepass") for part in address.split("/"))
    return values.SessionKey(*parts)
