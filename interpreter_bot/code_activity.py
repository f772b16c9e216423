"""Values that say what code of a session may reach outside, and what it got from there."""

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
        methods: of HTTP that are let through; none means all.
        paths: beginnings of those that are let through; none means all.
        has_secret: the bot adds what code does not know.
        needs_approval: a person is asked before.
    """

    host: str
    ports: tuple[int, ...]
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    has_secret: bool = False
    needs_approval: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """Something that the bot offers to code in its own network, such as a data connection.

    Attributes:
        kind: what it is, as its service is called.
        name: of it.
        description: a line for people and models.
        detail: for models only; may be long.
        recent: for people only: what code of the session asked of it last, and what came of that.
    """

    kind: str
    name: str
    description: str = ""
    detail: str = ""
    recent: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """What code of a session may reach outside, and has exchanged there today.

    Attributes:
        hosts: that it may reach; none means that it has no network.
        bytes: that went either way, since this bot began or the day did.
        max_bytes: that may.
        offers: what the bot itself offers to code.
        refusal: why nothing of what the operator allows can be reached; mostly empty.
        allowed: what people let it do outside as long as its Python lives, such as "POST host:443".
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
    """One attempt of code to reach the outside, as it is recorded.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        method: of HTTP; CONNECT where only the host is known.
        host: that was asked for, as far as it could be read.
        port: of it.
        path: without what follows a question mark; empty where it is not known.
        status: of HTTP that code was answered with; 0 if it went before.
        reason: why it was refused or ended; empty if nothing was wrong.
        sent_bytes: by code.
        received_bytes: by code.
        at: when it began, in seconds since the epoch.
        seconds: that it took.
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
    """One use of a data connection by code, as it is recorded.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        person: who asked last there, by the platform's id.
        connection: its name.
        statement: that was run, or the name of a file; without the values of parameters.
        reason: why it failed, or was cut; empty if nothing was wrong.
        rows: that it returned.
        sent_bytes: that code was sent.
        at: when it began, in seconds since the epoch.
        seconds: that it took.
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
    """Packages that code had installed together into its running kernel.

    Attributes:
        name: by which the host keeps them.
        packages: a line each, with version and hashes.
    """

    name: str
    packages: str


@dataclasses.dataclass(frozen=True, slots=True)
class AskedQuery:
    """One use of a data connection, as people see it under an answer; harmless text.

    Attributes:
        connection: its name.
        statement: that was run, or the name of a file; a long one is cut.
        rows: that it returned.
        seconds: that it took.
        reason: why it was refused, failed, or was cut; empty if nothing was wrong.
    """

    connection: str
    statement: str
    rows: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Installation:
    """Packages that were installed together into a running kernel.

    Attributes:
        key: of the session.
        kernel_id: of its kernel.
        person: whose code it was.
        layer: by which the host keeps them.
        packages: a line each, with version and hashes.
        at: when that is known to be done, in seconds since the epoch.
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
