"""What code of sessions had installed."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_NAMES = ("platform", "workspace", "channel", "thread", "kernel_id", "person", "layer")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "installations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
        sa.Column("packages", sa.Text(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_installations"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_installations_began", "installations", ["began"])


def downgrade() -> None:
    """Drop it, and everything in it."""
    op.drop_table("installations")
