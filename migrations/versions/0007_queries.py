"""What code of sessions asked of data connections."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_NAMES = ("platform", "workspace", "channel", "thread", "kernel_id", "person", "connection")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "queries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
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


def downgrade() -> None:
    """Drop it, and everything in it."""
    op.drop_table("queries")
