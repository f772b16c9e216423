"""Settings of what code in a kernel may reach outside, through the bot."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields

Port = Annotated[int, pydantic.Field(gt=0, le=65535)]


class Egress(fields.Group):
    """A host outside that code may reach, and how."""

    host: Annotated[str, pydantic.Field(min_length=1)]
    """Its name; `*.example.org` stands for every name below that one; or an address."""
    ports: tuple[Port, ...] = (443,)
    """Its ports."""
    places: tuple[str, ...] = ()
    """Where people may use it: `slack`, `slack/T024BE7LD`, `discord/GUILD/CHANNEL`, `web`,
    `console`, …; none named means everywhere."""
    addresses: tuple[str, ...] = ()
    """Private addresses or networks where it may be, such as `10.2.0.0/16`. Without them only
    public addresses are reached; those of the cloud's own services never are."""
    methods: tuple[str, ...] = ()
    """HTTP's methods that are let through, such as `GET`; none named means all."""
    paths: tuple[str, ...] = ()
    """Beginnings of the paths that are let through, such as `/rest/api/`; none named means all."""
    approval: Literal["never", "ask"] = "never"
    """Whether a person is asked, once or for a session, before code's request is sent."""
    headers: dict[str, str] = pydantic.Field(default_factory=dict, repr=False)
    """What the bot adds to each request, such as `Authorization = "Bearer ${JIRA_TOKEN}"`: of its
    own environment, which code never sees. Needs `paths`, so that no other page echoes it."""

    @property
    def is_read(self) -> bool:
        """Whether the bot has to read requests, rather than pass on what is encrypted."""
        return bool(self.methods or self.paths or self.headers or self.approval == "ask")


class EgressLimits(fields.Group):
    """How much code may exchange with the outside."""

    connections: Annotated[int, pydantic.Field(gt=0, le=1024)] = 32
    """Connections of one session at once."""
    requests: fields.Positive = 600
    """Connections and requests of one session in an hour."""
    sent_bytes: fields.Positive = 10 * fields.MIB
    """What one connection or request may send."""
    received_bytes: fields.Positive = 200 * fields.MIB
    """What one connection or request may receive."""
    daily_bytes: fields.Positive = 1 * fields.GIB
    """What one session may send and receive in a day."""
    record_days: Annotated[float, pydantic.Field(gt=0)] = 90.0
    """How long it is kept what code tried to reach."""
    connect_seconds: fields.Seconds = 10.0
    """How long a connection may take to be there."""
    idle_seconds: fields.Seconds = 60.0
    """How long nothing may come from either side."""
    request_seconds: fields.Seconds = 600.0
    """How long one connection or request may take."""
