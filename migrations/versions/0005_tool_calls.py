"""Calls of tools of MCP servers by code of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAMES = ("platform", "workspace", "channel", "thread", "person", "call_id", "server", "tool")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
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


def downgrade() -> None:
    """Drop it, and everything in it."""
    op.drop_table("tool_calls")
