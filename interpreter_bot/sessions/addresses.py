"""The one text for a conversation's key, by which kernels and workspaces are found."""

from __future__ import annotations

import urllib.parse

from interpreter_bot import values


def text(key: values.SessionKey) -> str:
    """Write a key so that no two keys look the same, whatever their parts hold."""
    parts = (key.platform, key.workspace, key.channel, key.thread)
    return "/".join(urllib.parse.quote(part, safe="", errors="surrogatepass") for part in parts)
