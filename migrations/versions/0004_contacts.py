"""What code of sessions tried to reach outside."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NAMES = ("platform", "workspace", "channel", "thread", "kernel_id", "method")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "contacts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
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


def downgrade() -> None:
    """Drop it, and everything in it."""
    op.drop_table("contacts")
