"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = ("sessions", "turns", "executions", "parts", "artifacts", "usage", "choices", "events")


def upgrade() -> None:
    """Make them, those first that others refer to."""
    _make_sessions()
    _make_turns()
    _make_executions()
    _make_parts()
    _make_artifacts()
    _make_usage()
    _make_choices()
    _make_events()


def downgrade() -> None:
    """Drop them, and everything in them."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _make_sessions() -> None:
    where = ("platform", "workspace", "channel", "thread")
    op.create_table(
        "sessions",
        _id(),
        *map(_name, where),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("model", sa.String(128)),
        sa.Column("kernel", sa.Text()),
        _moment("created"),
        _moment("used"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint(*where, name="uq_sessions_platform_workspace_channel_thread"),
        sqlite_autoincrement=True,
    )
    _index("sessions", "platform", "workspace", "used")


def _make_turns() -> None:
    op.create_table(
        "turns",
        _id(),
        sa.Column("session_id", sa.BigInteger(), nullable=False),
        _name("request_id"),
        _name("person"),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("attachments", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        _name("owner"),
        _moment("started"),
        sa.Column("ended", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        _reference("turns", "session", on_delete="CASCADE"),
        sqlite_autoincrement=True,
    )
    _index("turns", "session_id")
    _index("turns", "status", "owner")


def _make_executions() -> None:
    op.create_table(
        "executions",
        _id(),
        sa.Column("turn_id", sa.BigInteger(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("ending", sa.String(16)),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("kernel_lost", sa.Boolean(), nullable=False),
        _moment("started"),
        sa.PrimaryKeyConstraint("id", name="pk_executions"),
        _reference("executions", "turn", on_delete="CASCADE"),
        sqlite_autoincrement=True,
    )
    _index("executions", "turn_id")


def _make_parts() -> None:
    op.create_table(
        "parts",
        _id(),
        sa.Column("turn_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("output", sa.Text()),
        sa.Column("sha256", sa.String(64)),
        sa.Column("detail", sa.Text()),
        sa.Column("execution_id", sa.BigInteger()),
        _moment("created"),
        sa.PrimaryKeyConstraint("id", name="pk_parts"),
        _reference("parts", "turn", on_delete="CASCADE"),
        _reference("parts", "execution", on_delete="SET NULL"),
        sqlite_autoincrement=True,
    )
    _index("parts", "turn_id")
    _index("parts", "execution_id")
    _index("parts", "sha256")


def _make_artifacts() -> None:
    op.create_table(
        "artifacts",
        _id(),
        sa.Column("turn_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        _name("media_type"),
        _moment("created"),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
        _reference("artifacts", "turn", on_delete="CASCADE"),
        sqlite_autoincrement=True,
    )
    _index("artifacts", "turn_id")


def _make_usage() -> None:
    op.create_table(
        "usage",
        _id(),
        sa.Column("turn_id", sa.BigInteger()),
        sa.Column("session_id", sa.BigInteger()),
        _name("platform"),
        _name("workspace"),
        _name("person"),
        sa.Column("day", sa.Date(), nullable=False),
        _name("model"),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("money_micros", sa.BigInteger(), nullable=False),
        sa.Column("cpu_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
        _reference("usage", "turn", on_delete="SET NULL"),
        _reference("usage", "session", on_delete="SET NULL"),
        sqlite_autoincrement=True,
    )
    _index("usage", "turn_id")
    _index("usage", "session_id")
    _index("usage", "platform", "workspace", "person", "day")


def _make_choices() -> None:
    scope = ("platform", "workspace", "channel", "person")
    op.create_table(
        "choices",
        _id(),
        *map(_name, (*scope, "name")),
        sa.Column("value", sa.Text(), nullable=False),
        _moment("changed"),
        sa.PrimaryKeyConstraint("id", name="pk_choices"),
        sa.UniqueConstraint(
            "name", *scope, name="uq_choices_name_platform_workspace_channel_person"
        ),
        sqlite_autoincrement=True,
    )


def _make_events() -> None:
    op.create_table(
        "events",
        _name("platform"),
        _name("event_id"),
        _moment("seen"),
        sa.PrimaryKeyConstraint("platform", "event_id", name="pk_events"),
    )
    _index("events", "seen")


def _id() -> sa.Column:
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False)


def _name(name: str) -> sa.Column:
    return sa.Column(name, sa.String(128), nullable=False)


def _moment(name: str) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def _reference(table: str, to: str, *, on_delete: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [f"{to}_id"], [f"{to}s.id"], name=f"fk_{table}_{to}_id", ondelete=on_delete
    )


def _index(table: str, *columns: str) -> None:
    op.create_index("_".join(("ix", table, *columns)), table, columns)
