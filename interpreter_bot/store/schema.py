"""Table definitions. A change here needs a migration; a test compares the two."""

from __future__ import annotations

import datetime

import sqlalchemy as sa
from sqlalchemy import schema

from interpreter_bot.store import columns

METADATA = sa.MetaData(
    # A constraint without a name cannot be altered by a migration.
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *items: schema.SchemaItem) -> sa.Table:
    # Otherwise SQLite reuses the ids of deleted rows, and a turn that is still running would
    # continue in another person's conversation.
    return sa.Table(name, METADATA, _id(), *items, sqlite_autoincrement=True)


def _id() -> sa.Column[int]:
    # SQLite counts up by itself only where the type is exactly INTEGER.
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True)


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, columns.Name, nullable=False)


def _names(*names: str) -> tuple[sa.Column[str], ...]:
    return tuple(map(_name, names))


def _prose(name: str) -> sa.Column[str]:
    return sa.Column(name, columns.Prose, nullable=False)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[datetime.datetime]:
    return sa.Column(name, columns.Moment, nullable=nullable)


def _of(table: str, *, or_none: bool = False) -> sa.Column[int]:
    """Build a foreign key to `table`; deletion cascades or, with `or_none`, sets NULL."""
    return sa.Column(
        f"{table.removesuffix('s')}_id",
        sa.BigInteger,
        sa.ForeignKey(f"{table}.id", ondelete="SET NULL" if or_none else "CASCADE"),
        nullable=or_none,
        index=True,
    )


SESSIONS = _table(
    "sessions",
    *_names("platform", "workspace", "channel", "thread"),
    _prose("title"),
    sa.Column("model", columns.Name),
    sa.Column("kernel", columns.Document),
    sa.Column("files", columns.Document),
    sa.Column("mark", sa.String(16), nullable=False, server_default=""),
    sa.Column("branch_of", sa.BigInteger, index=True),
    _moment("created"),
    _moment("used"),
    sa.UniqueConstraint("platform", "workspace", "channel", "thread"),
    sa.Index(None, "platform", "workspace", "used"),
)

# The first migration makes an index of its words: on SQLite by triggers, which go with the table
# if a migration copies it.
TURNS = _table(
    "turns",
    _of("sessions"),
    _name("request_id"),
    _name("person"),
    _prose("request"),
    sa.Column("attachments", columns.Document, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    _prose("answer"),
    _name("owner"),
    sa.Column("progress", columns.Document),
    # Ids of turns that may be deleted: no foreign keys.
    sa.Column("original", sa.BigInteger),
    sa.Column("instead_of", sa.BigInteger),
    _moment("started"),
    _moment("ended", nullable=True),
    # Orphans are looked for at every start.
    sa.Index(None, "status", "owner"),
)

EXECUTIONS = _table(
    "executions",
    _of("turns"),
    _prose("code"),
    sa.Column("hosted_id", columns.Name, nullable=False, server_default=""),
    sa.Column("heard", sa.Integer, nullable=False, server_default="0"),
    sa.Column("ending", sa.String(16)),
    sa.Column("seconds", sa.Double, nullable=False),
    _prose("reason"),
    sa.Column("kernel_lost", sa.Boolean, nullable=False),
    _moment("started"),
)

PARTS = _table(
    "parts",
    _of("turns"),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    _prose("text"),
    sa.Column("output", columns.Document),
    # The blob that the output refers to, so that unreferenced blobs can be found.
    sa.Column("sha256", sa.String(64), index=True),
    sa.Column("detail", columns.Document),
    _of("executions", or_none=True),
    _moment("created"),
)

ARTIFACTS = _table(
    "artifacts",
    _of("turns"),
    _prose("name"),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    _name("media_type"),
    _moment("created"),
)

# What a turn asked its people last, until it has ended.
QUESTIONS = _table(
    "questions",
    sa.Column(
        "turn_id",
        sa.BigInteger,
        sa.ForeignKey("turns.id", ondelete="CASCADE"),
        nullable=False,
        unique=True,
    ),
    _name("name"),
    sa.Column("question", columns.Document, nullable=False),
    sa.Column("answer", columns.Document),
)

# What people let code do again and again, as long as its kernel lives.
GRANTS = _table(
    "grants",
    _of("sessions"),
    *_names("kernel_id", "person", "subject", "name"),
    sa.Column("digest", sa.String(64), nullable=False),
)

USAGE = _table(
    "usage",
    # Money stays spent when the conversation is deleted.
    _of("turns", or_none=True),
    _of("sessions", or_none=True),
    *_names("platform", "workspace", "person"),
    sa.Column("day", sa.Date, nullable=False),
    _name("model"),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("money_micros", sa.BigInteger, nullable=False),
    sa.Column("cpu_seconds", sa.Double, nullable=False),
    sa.Index(None, "platform", "workspace", "person", "day"),
)

PLACEMENTS = _table(
    "placements",
    # Of its key, which may be too long for an index.
    sa.Column("session_digest", sa.String(64), nullable=False, unique=True),
    _name("host"),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("is_told", sa.Boolean, nullable=False),
    _moment("placed"),
)

HOSTS = _table(
    "hosts",
    sa.Column("address", columns.Name, nullable=False, unique=True),
    _name("data_id"),
    _name("boot_id"),
    sa.Column("free_bytes", sa.BigInteger, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("is_draining", sa.Boolean, nullable=False),
    _moment("seen"),
)

CHOICES = _table(
    "choices",
    *_names("platform", "workspace", "channel", "person", "name"),
    sa.Column("value", columns.Document, nullable=False),
    _moment("changed"),
    sa.UniqueConstraint("name", "platform", "workspace", "channel", "person"),
)

EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("platform", columns.Name, primary_key=True),
    sa.Column("event_id", columns.Name, primary_key=True),
    sa.Column("seen", columns.Moment, nullable=False, index=True),
    # Who claimed a message that people wait for; the session is empty once they do no more.
    sa.Column("owner", columns.Name, nullable=False, server_default=""),
    sa.Column("request_id", columns.Name, nullable=False, server_default=""),
    sa.Column("address", columns.Prose, nullable=False, server_default=""),
    # Of a message that people wait for: what its platform needs to take it again.
    sa.Column("content", columns.Document),
)

# Messages of answers: noted before each is posted, so that a bot that is killed then leaves none
# behind that the next one does not know.
DELIVERIES = sa.Table(
    "deliveries",
    METADATA,
    sa.Column("platform", columns.Name, primary_key=True),
    sa.Column("request_id", columns.Name, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("nonce", columns.Name, nullable=False),
    sa.Column("digest", columns.Name, nullable=False),
    sa.Column("tried", sa.Double, nullable=False, index=True),
    # Its id on the network; empty until it is known to stand.
    sa.Column("message", columns.Name, nullable=False, server_default=""),
)

# What code did outside, each whole in its content; it stays when the conversation is deleted.
ACTIVITIES = _table(
    "activities",
    *_names("platform", "workspace", "channel", "thread", "person"),
    sa.Column("kind", sa.String(16), nullable=False),
    # Two with the same one are the same: a call that code asks for twice is made once.
    sa.Column("reference", columns.Name),
    sa.Column("content", columns.Document, nullable=False),
    _moment("began"),
    sa.UniqueConstraint("kind", "reference"),
    sa.Index(None, "kind", "began"),
)

# Accounts at MCP servers that people let the bot use, with tokens; all that is secret is encrypted.
ACCOUNTS = _table(
    "accounts",
    *_names("platform", "workspace", "person", "server"),
    _prose("sealed"),
    _moment("changed"),
    sa.UniqueConstraint("platform", "workspace", "person", "server"),
)

# Logins there that have begun: one of a person at a server, found by a digest of what only their
# browser knows.
LOGINS = _table(
    "logins",
    *_names("platform", "workspace", "person", "server"),
    sa.Column("digest", sa.String(64), nullable=False),
    _prose("sealed"),
    _moment("began"),
    sa.UniqueConstraint("digest"),
    sa.UniqueConstraint("platform", "workspace", "person", "server"),
)
