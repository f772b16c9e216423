"""Values about what code of a session may reach outside of the sandbox, and records of its use."""

from __future__ import annotations

import dataclasses
import time
from typing import Final, TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class ReachableHost:
    """A host that code of a session may reach.

    Attributes:
        host: a name, an address, or `*.` and a name.
        ports: its ports.
        methods: allowed HTTP methods; empty for all.
        paths: prefixes of allowed paths; empty for all.
        has_secret: the bot adds secrets to requests.
        needs_approval: a person has to approve requests.
    """

    host: str
    ports: tuple[int, ...]
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    has_secret: bool = False
    needs_approval: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """A service of the bot for code, such as a data connection.

    Attributes:
        service: the name of its service.
        name: its own name.
        description: a line for people and models.
        model_details: for models only; may be long.
        recent_queries: for people only: the latest queries of the session, and their outcomes.
    """

    service: str
    name: str
    description: str = ""
    model_details: str = ""
    recent_queries: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """What code of a session may reach outside of the sandbox, and its traffic today.

    Attributes:
        hosts: allowed hosts; empty if it has no network.
        used_bytes: sent and received today, since this bot started.
        max_bytes: the limit of `used_bytes`.
        offers: services of the bot.
        grants: approvals of people that are valid while its Python lives, such as
            "POST host:443".
        refusal: why nothing can be reached at all; empty if something can.
    """

    hosts: tuple[ReachableHost, ...] = ()
    used_bytes: int = 0
    max_bytes: int = 0
    offers: tuple[Offer, ...] = ()
    grants: tuple[str, ...] = ()
    refusal: str = ""


NO_REACH: Final = Reach()


@dataclasses.dataclass(slots=True)
class Contact:
    """The record of one attempt of code to reach a host.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        method: of HTTP; CONNECT if only the host is known.
        host: the requested host, as far as it could be read.
        port: the requested port.
        path: without the query; empty if it is not known.
        status: of the HTTP answer; 0 if there was none.
        reason: why it was refused or ended; empty if it succeeded.
        sent_bytes: by code.
        received_bytes: by code.
        happened_at: when it began, in seconds since the epoch.
        seconds: its duration.
    """

    key: str
    kernel_id: str
    method: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    status: int = 0
    reason: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    happened_at: float = dataclasses.field(default_factory=time.time)
    seconds: float = 0.0


@dataclasses.dataclass(slots=True)
class Query:
    """The record of one use of a data connection by code.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        person: id of the person whose turn it was, on the platform.
        connection: its name.
        statement: the statement, without values of parameters, or the name of a file.
        reason: why it failed, or was cut; empty if it succeeded.
        rows: the number of returned rows.
        sent_bytes: of the rows, as code got them.
        happened_at: when it began, in seconds since the epoch.
        seconds: its duration.
    """

    key: str
    kernel_id: str
    person: str
    connection: str
    statement: str
    reason: str = ""
    rows: int = 0
    sent_bytes: int = 0
    happened_at: float = dataclasses.field(default_factory=time.time)
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class InstalledLayer:
    """Packages that were installed together into a running kernel.

    Attributes:
        name: identifies them at the host.
        packages: one line for each, with version and hashes.
    """

    name: str
    packages: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShownQuery:
    """One use of a data connection, as shown below an answer; its text is harmless.

    Attributes:
        connection: its name.
        statement: the statement or the name of a file; a long one is cut.
        rows: the number of returned rows.
        seconds: its duration.
        reason: why it was refused, failed, or was cut; empty if it succeeded.
    """

    connection: str
    statement: str
    rows: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Installation:
    """The record of packages that were installed together into a running kernel.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        person: whose code it was.
        layer: identifies them at the host.
        packages: one line for each, with version and hashes.
        happened_at: when they were known to be installed, in seconds since the epoch.
    """

    key: str
    kernel_id: str
    person: str
    layer: str
    packages: str
    happened_at: float = dataclasses.field(default_factory=time.time)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The record of a call of a tool.

    Attributes:
        key: of the session.
        person: whose request the code serves.
        call_id: the code's name for the call.
        server: the server that has the tool.
        tool: its name.
        arguments: JSON, shortened.
        was_approved: a person was asked, and approved.
        outcome: begun, done, failed or refused.
        reason: why it was refused, or failed.
        sent_bytes: size of all arguments.
        received_bytes: size of the result.
        happened_at: when it began, in seconds since the epoch.
        seconds: its duration.
    """

    key: str
    person: str
    call_id: str
    server: str
    tool: str
    arguments: str
    was_approved: bool = False
    outcome: str = "begun"
    reason: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    happened_at: float = dataclasses.field(default_factory=time.time)
    seconds: float = 0.0


Activity: TypeAlias = Contact | Query | Installation | ToolCall
"""The record of something that code did outside of the sandbox."""
