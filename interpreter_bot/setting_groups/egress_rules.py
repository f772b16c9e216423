"""Settings of what code in a kernel may reach outside, through the bot."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields

Port = Annotated[int, pydantic.Field(gt=0, le=65535)]


class Egress(fields.Group):
    """A host outside that code may reach, and how."""

    host: Annotated[str, pydantic.Field(min_length=1)]
    """Name or address of the host. `*.example.org` matches every name below that one."""
    ports: tuple[Port, ...] = (443,)
    """Ports of the host."""
    places: tuple[str, ...] = ()
    """Where it may be used: `slack`, `slack/T024BE7LD`, `discord/GUILD/CHANNEL`, `web`, `console`,
    … Empty means everywhere."""
    addresses: tuple[str, ...] = ()
    """Private addresses or networks that the name may resolve to, such as `10.2.0.0/16`. Without
    them only public addresses are reached. Metadata services of clouds are never reached."""
    methods: tuple[str, ...] = ()
    """HTTP methods that are allowed, such as `GET`. Empty means all."""
    paths: tuple[str, ...] = ()
    """Beginnings of allowed paths, such as `/rest/api/`. Empty means all."""
    approval: Literal["never", "ask"] = "never"
    """`ask`: a person approves requests, one at a time or for the session, before they are sent."""
    headers: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """Headers that the bot adds to each request, such as `Authorization = "Bearer ${JIRA_TOKEN}"`.
    `${NAME}` comes from the bot's environment, which code never sees. Needs `paths`, so that no
    other page echoes the secret."""


class EgressLimits(fields.Group):
    """Limits on what code exchanges with the hosts in `egress`."""

    sent_bytes: fields.Positive = 10 * fields.MIB
    """Bytes that one connection or request may send."""
    daily_bytes: fields.Positive = 1 * fields.GIB
    """Bytes that one session may send and receive in a day. One connection or request may receive a
    fifth of them."""

    @property
    def received_bytes(self) -> int:
        """Bytes that one connection or request may receive."""
        return self.daily_bytes // 5
