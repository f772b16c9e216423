"""The first tables, as Alembic wrote them, and the index of words for search.

SQLite's index, `turn_words`, is a table that triggers keep; it has no copy of the words itself.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "accounts",
    "choices",
    "contacts",
    "events",
    "hosts",
    "installations",
    "instance_calls",
    "logins",
    "placements",
    "queries",
    "sessions",
    "tool_calls",
    "turns",
    "artifacts",
    "executions",
    "usage",
    "parts",
)
_OLD = (
    "INSERT INTO turn_words(turn_words, rowid, request, answer)"
    " VALUES ('delete', old.id, old.request, old.answer);"
)
_NEW = "INSERT INTO turn_words(rowid, request, answer) VALUES (new.id, new.request, new.answer);"
_SQLITE = (
    "CREATE VIRTUAL TABLE turn_words"
    " USING fts5(request, answer, content='turns', content_rowid='id')",
    f"CREATE TRIGGER turn_words_begun AFTER INSERT ON turns BEGIN {_NEW} END",
    f"CREATE TRIGGER turn_words_gone AFTER DELETE ON turns BEGIN {_OLD} END",
    "CREATE TRIGGER turn_words_changed AFTER UPDATE OF request, answer ON turns"
    f" BEGIN {_OLD} {_NEW} END",
)
_POSTGRESQL = (
    "CREATE INDEX turn_words ON turns USING gin (to_tsvector('simple'::regconfig,"
    " substr(request, 1, 50000) || ' ' || substr(answer, 1, 50000)))"
)


def upgrade() -> None:
    """Make them, those first that others refer to."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("server", sa.String(128), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint(
            "platform",
            "workspace",
            "person",
            "server",
            name="uq_accounts_platform_workspace_person_server",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "choices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_choices"),
        sa.UniqueConstraint(
            "name",
            "platform",
            "workspace",
            "channel",
            "person",
            name="uq_choices_name_platform_workspace_channel_person",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "contacts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("thread", sa.String(128), nullable=False),
        sa.Column("kernel_id", sa.String(128), nullable=False),
        sa.Column("method", sa.String(128), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_contacts"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_contacts_began", "contacts", ["began"])
    op.create_table(
        "events",
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("event_id", sa.String(128), nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("owner", sa.String(128), server_default="", nullable=False),
        sa.Column("request_id", sa.String(128), server_default="", nullable=False),
        sa.Column("address", sa.Text(), server_default="", nullable=False),
        sa.Column("content", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("platform", "event_id", name="pk_events"),
    )
    op.create_index("ix_events_seen", "events", ["seen"])
    op.create_table(
        "hosts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("address", sa.String(128), nullable=False),
        sa.Column("data_id", sa.String(128), nullable=False),
        sa.Column("boot_id", sa.String(128), nullable=False),
        sa.Column("free_bytes", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hosts"),
        sa.UniqueConstraint("address", name="uq_hosts_address"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "installations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("thread", sa.String(128), nullable=False),
        sa.Column("kernel_id", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("layer", sa.String(128), nullable=False),
        sa.Column("packages", sa.Text(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_installations"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_installations_began", "installations", ["began"])
    op.create_table(
        "instance_calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sender", sa.String(128), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("taker", sa.String(128), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_calls"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "logins",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("server", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_logins"),
        sa.UniqueConstraint("digest", name="uq_logins_digest"),
        sa.UniqueConstraint(
            "platform",
            "workspace",
            "person",
            "server",
            name="uq_logins_platform_workspace_person_server",
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "placements",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("session_digest", sa.String(64), nullable=False),
        sa.Column("host", sa.String(128), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("is_told", sa.Boolean(), nullable=False),
        sa.Column("placed", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_placements"),
        sa.UniqueConstraint("session_digest", name="uq_placements_session_digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "queries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("thread", sa.String(128), nullable=False),
        sa.Column("kernel_id", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("connection", sa.String(128), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_queries"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_queries_began", "queries", ["began"])
    op.create_table(
        "sessions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("thread", sa.String(128), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("model", sa.String(128), nullable=True),
        sa.Column("kernel", sa.Text(), nullable=True),
        sa.Column("files", sa.Text(), nullable=True),
        sa.Column("mark", sa.String(16), server_default="", nullable=False),
        sa.Column("branch_of", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint(
            "platform",
            "workspace",
            "channel",
            "thread",
            name="uq_sessions_platform_workspace_channel_thread",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_sessions_branch_of", "sessions", ["branch_of"])
    op.create_index(
        "ix_sessions_platform_workspace_used", "sessions", ["platform", "workspace", "used"]
    )
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("thread", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("call_id", sa.String(128), nullable=False),
        sa.Column("server", sa.String(128), nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("was_approved", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tool_calls"),
        sa.UniqueConstraint("call_id", name="uq_tool_calls_call_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_calls_began", "tool_calls", ["began"])
    op.create_table(
        "turns",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("session_id", sa.BigInteger(), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("attachments", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("original", sa.BigInteger(), nullable=True),
        sa.Column("instead_of", sa.BigInteger(), nullable=True),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_turns_session_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_turns_session_id", "turns", ["session_id"])
    op.create_index("ix_turns_status_owner", "turns", ["status", "owner"])
    op.create_table(
        "artifacts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("media_type", sa.String(128), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_artifacts_turn_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_artifacts_turn_id", "artifacts", ["turn_id"])
    op.create_table(
        "executions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_id", sa.BigInteger(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("hosted_id", sa.String(128), server_default="", nullable=False),
        sa.Column("heard", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ending", sa.String(16), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("kernel_lost", sa.Boolean(), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_executions_turn_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_executions"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_executions_turn_id", "executions", ["turn_id"])
    op.create_table(
        "usage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_id", sa.BigInteger(), nullable=True),
        sa.Column("session_id", sa.BigInteger(), nullable=True),
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("money_micros", sa.BigInteger(), nullable=False),
        sa.Column("cpu_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_usage_session_id", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_usage_turn_id", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_usage_platform_workspace_person_day",
        "usage",
        ["platform", "workspace", "person", "day"],
    )
    op.create_index("ix_usage_session_id", "usage", ["session_id"])
    op.create_index("ix_usage_turn_id", "usage", ["turn_id"])
    op.create_table(
        "parts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("sha256", sa.String(64), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("execution_id", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["executions.id"], name="fk_parts_execution_id", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_parts_turn_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_parts"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_parts_execution_id", "parts", ["execution_id"])
    op.create_index("ix_parts_sha256", "parts", ["sha256"])
    op.create_index("ix_parts_turn_id", "parts", ["turn_id"])
    is_sqlite = op.get_context().dialect.name == "sqlite"
    for statement in _SQLITE if is_sqlite else (_POSTGRESQL,):
        op.execute(statement)


def downgrade() -> None:
    """Drop them, and everything in them."""
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TABLE turn_words")
    for table in reversed(_TABLES):
        op.drop_table(table)
