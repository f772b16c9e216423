"""The first tables, and the full-text index for search.

Earlier numbers belong to unreleased versions, whose databases are refused. SQLite's index is the
table `turn_words`, which triggers keep up to date; it refers to the text of `turns` instead of
copying it.
"""

import datetime

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = None
branch_labels = None
depends_on = None

_DELETE_OLD_WORDS = (
    "INSERT INTO turn_words(turn_words, rowid, request, answer)"
    " VALUES ('delete', old.id, old.request, old.answer);"
)
_INSERT_NEW_WORDS = (
    "INSERT INTO turn_words(rowid, request, answer) VALUES (new.id, new.request, new.answer);"
)
_SQLITE = (
    "CREATE VIRTUAL TABLE turn_words"
    " USING fts5(request, answer, content='turns', content_rowid='id')",
    f"CREATE TRIGGER turn_words_begun AFTER INSERT ON turns BEGIN {_INSERT_NEW_WORDS} END",
    f"CREATE TRIGGER turn_words_gone AFTER DELETE ON turns BEGIN {_DELETE_OLD_WORDS} END",
    "CREATE TRIGGER turn_words_changed AFTER UPDATE OF request, answer ON turns"
    f" BEGIN {_DELETE_OLD_WORDS} {_INSERT_NEW_WORDS} END",
)
_POSTGRESQL = (
    "CREATE INDEX turn_words ON turns USING gin (to_tsvector('simple'::regconfig,"
    " substr(request, 1, 50000) || ' ' || substr(answer, 1, 50000)))"
)


def upgrade() -> None:
    """Create all tables, in an order in which each refers only to earlier ones."""
    table(
        "sessions",
        *names("platform", "workspace", "channel", "thread"),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("model", sa.String(128)),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("mark", sa.String(16), nullable=False),
        sa.Column("branch_of", sa.BigInteger(), index=True),
        *moments("created", "used"),
        sa.UniqueConstraint("platform", "workspace", "channel", "thread"),
        sa.Index(None, "platform", "workspace", "used"),
    )
    table(
        "turns",
        reference("session"),
        sa.Column("request_id", sa.String(128), nullable=False, index=True),
        sa.Column("schedule_run_id", sa.BigInteger(), index=True),
        *names("person"),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("attachments", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        *names("owner"),
        sa.Column("progress", sa.Text()),
        sa.Column("original", sa.BigInteger()),
        sa.Column("instead_of", sa.BigInteger()),
        *moments("started"),
        sa.Column("ended", sa.DateTime(timezone=True)),
        sa.Index(None, "status", "owner"),
    )
    table(
        "executions",
        reference("turn"),
        sa.Column("code", sa.Text(), nullable=False),
        *names("hosted_id"),
        sa.Column("last_output_number", sa.BigInteger(), nullable=False),
        sa.Column("ending", sa.String(16)),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("kernel_lost", sa.Boolean(), nullable=False),
        *moments("started"),
    )
    table(
        "parts",
        reference("turn"),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("output", sa.Text()),
        sa.Column("sha256", sa.String(64), index=True),
        sa.Column("detail", sa.Text(), nullable=False),
        reference("execution", outlives=True),
        *moments("created"),
    )
    table(
        "artifacts",
        reference("turn"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        *names("media_type"),
        *moments("created"),
    )
    table(
        "questions",
        reference("turn", index=False),
        *names("name"),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.UniqueConstraint("turn_id"),
    )
    table(
        "grants",
        reference("session"),
        *names("kernel_id", "person", "subject", "name"),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    table(
        "usage",
        reference("turn", outlives=True),
        reference("session", outlives=True),
        *names("platform", "workspace", "person"),
        sa.Column("day", sa.Date(), nullable=False),
        *names("model"),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("money_micros", sa.BigInteger(), nullable=False),
        sa.Column("cpu_seconds", sa.Double(), nullable=False),
        sa.Index(None, "platform", "workspace", "person", "day"),
    )
    table(
        "placements",
        sa.Column("session_digest", sa.String(64), nullable=False),
        *names("host"),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("is_announced", sa.Boolean(), nullable=False),
        *moments("placed"),
        sa.UniqueConstraint("session_digest"),
    )
    table(
        "hosts",
        *names("address", "data_id", "boot_id"),
        sa.Column("free_bytes", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        *moments("seen"),
        sa.UniqueConstraint("address"),
    )
    table(
        "choices",
        *names("platform", "workspace", "channel", "person", "thread", "name"),
        sa.Column("value", sa.Text(), nullable=False),
        *names("author"),
        *moments("changed"),
        sa.UniqueConstraint("name", "platform", "workspace", "channel", "person", "thread"),
    )
    table(
        "notes",
        *names("platform", "workspace", "channel", "person", "thread"),
        sa.Column("text", sa.Text(), nullable=False),
        *names("confirmed_by", "author"),
        *moments("created"),
        sa.Index(None, "platform", "workspace", "channel", "person", "thread"),
    )
    op.create_table(
        "events",
        sa.Column("platform", sa.String(128), primary_key=True),
        sa.Column("event_id", sa.String(128), primary_key=True),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False, index=True),
        *names("owner", "request_id"),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("content", sa.Text()),
    )
    op.create_table(
        "deliveries",
        sa.Column("platform", sa.String(128), primary_key=True),
        sa.Column("request_id", sa.String(128), primary_key=True),
        sa.Column("position", sa.BigInteger(), primary_key=True),
        *names("nonce", "digest", "message"),
        sa.Column("first_tried_at", sa.Double(), nullable=False, index=True),
    )
    table(
        "activities",
        *names("platform", "workspace", "channel", "thread", "person"),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("reference", sa.String(128)),
        sa.Column("content", sa.Text(), nullable=False),
        *moments("began"),
        sa.UniqueConstraint("kind", "reference"),
        sa.Index(None, "kind", "began"),
    )
    table(
        "schedules",
        *names("platform", "workspace", "channel", "thread", "person"),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("times", sa.Text(), nullable=False),
        *names("cron", "zone"),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text(), nullable=False),
        *names("model"),
        sa.Column("due", sa.DateTime(timezone=True), index=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        *moments("created"),
        sa.Index(None, "platform", "workspace", "channel"),
    )
    table(
        "schedule_runs",
        reference("schedule"),
        *moments("due"),
        sa.Column("outcome", sa.String(16)),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("holds", sa.Boolean()),
        sa.Column("ended", sa.DateTime(timezone=True), index=True),
        sa.UniqueConstraint("schedule_id", "due"),
    )
    table(
        "accounts",
        *names("platform", "workspace", "person", "server"),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        *moments("changed"),
        sa.UniqueConstraint("platform", "workspace", "person", "server"),
    )
    table(
        "logins",
        *names("platform", "workspace", "person", "server"),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        *moments("began"),
        sa.UniqueConstraint("digest"),
        sa.UniqueConstraint("platform", "workspace", "person", "server"),
    )
    is_sqlite = op.get_context().dialect.name == "sqlite"
    for statement in _SQLITE if is_sqlite else (_POSTGRESQL,):
        op.execute(statement)


def downgrade() -> None:
    """Refuse, because no earlier schema exists."""
    raise NotImplementedError


def table(name: str, *items: sa.schema.SchemaItem) -> None:
    """Create a table whose ids SQLite never uses again."""
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(name, sa.Column("id", key, primary_key=True), *items, sqlite_autoincrement=True)


def names(*names: str) -> list[sa.Column[str]]:
    """Return required columns of short text."""
    return [sa.Column(name, sa.String(128), nullable=False) for name in names]


def moments(*names: str) -> list[sa.Column[datetime.datetime]]:
    """Return required columns of times."""
    return [sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in names]


def reference(to: str, *, outlives: bool = False, index: bool = True) -> sa.Column[int]:
    """Return a foreign key; a row is deleted with the row it refers to, or `outlives` that."""
    key = sa.ForeignKey(f"{to}s.id", ondelete="SET NULL" if outlives else "CASCADE")
    return sa.Column(f"{to}_id", sa.BigInteger(), key, nullable=outlives, index=index)
