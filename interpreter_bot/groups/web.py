"""What the operator decides about the web page."""

from __future__ import annotations

import pathlib
from typing import Annotated, Literal

import pydantic

from interpreter_bot.groups import tables


class Web(tables.Group):
    """Where the page is served, and for whom."""

    enabled: bool = True
    """Serve it."""
    host: str = "127.0.0.1"
    """The address to listen on. Anything but loopback shows the page to the network: put a proxy
    that speaks TLS before it."""
    port: Annotated[int, pydantic.Field(ge=0, le=65535)] = 8765
    """0 takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names other than those of loopback under which browsers may ask for the page, such as
    "bot.example.org" or "bot.example.org:8443". Without a port, any port."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether whoever uses the page is asked before the model's code runs; who does can choose a
    stricter one there."""
    token_file: pathlib.Path | None = None
    """Holds the token, made where there is none. Default: in the data directory."""
