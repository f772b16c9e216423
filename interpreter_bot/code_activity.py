"""Values about what code of a session may reach outside of the sandbox, and its use."""

from __future__ import annotations

import dataclasses
import time
from typing import Final, TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class Reachable:
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
        kind: the name of its service.
        name: its own name.
        description: a line for people and models.
        detail: for models only; may be long.
        recent: for people only: the latest requests of the session, and their outcomes.
    """

    kind: str
    name: str
    description: str = ""
    detail: str = ""
    recent: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """What code of a session may reach outside of the sandbox, and its traffic today.

    Attributes:
        hosts: allowed hosts; empty if it has no network.
        bytes: sent and received today, since this bot started.
        max_bytes: the limit of `bytes`.
        offers: services of the bot.
        allowed: approvals of people that are valid while its Python lives, such as
            "POST host:443".
        refusal: why nothing can be reached at all; mostly empty.
    """

    hosts: tuple[Reachable, ...] = ()
    bytes: int = 0
    max_bytes: int = 0
    offers: tuple[Offer, ...] = ()
    allowed: tuple[str, ...] = ()
    refusal: str = ""


NOWHERE: Final = Reach()


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
        at: when it began, in seconds since the epoch.
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
    at: float = dataclasses.field(default_factory=time.time)
    seconds: float = 0.0


@dataclasses.dataclass(slots=True)
class Query:
    """The record of one use of a data connection by code.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        person: whose turn it was, by the id on the platform.
        connection: its name.
        statement: the statement, without values of parameters, or the name of a file.
        reason: why it failed, or was cut; empty if it succeeded.
        rows: the number of returned rows.
        sent_bytes: sent to code.
        at: when it began, in seconds since the epoch.
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
    at: float = dataclasses.field(default_factory=time.time)
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
class AskedQuery:
    """One use of a data connection, for display under an answer; its text is harmless.

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
        at: when they are known to be installed, in seconds since the epoch.
    """

    key: str
    kernel_id: str
    person: str
    layer: str
    packages: str
    at: float = dataclasses.field(default_factory=time.time)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        key: of the session.
        person: who asked what the code runs for.
        call_id: by which the code knows it.
        server: whose tool it is.
        tool: its name.
        arguments: JSON, shortened.
        was_approved: a person was asked, and agreed.
        outcome: begun, done, failed or refused.
        reason: why it was refused, or failed.
        sent_bytes: of all arguments.
        received_bytes: of the result.
        at: when it began, in seconds since the epoch.
        seconds: that it took.
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
    at: float = dataclasses.field(default_factory=time.time)
    seconds: float = 0.0


Activity: TypeAlias = Contact | Query | Installation | ToolCall
"""What is recorded of what code did outside."""
