"""Calls between instances: what one was told that another one has to do."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAMES = ("sender", "name", "taker")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "instance_calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_calls"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("instance_calls")
