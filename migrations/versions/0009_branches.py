"""Branches of conversations: which tree a session belongs to, and which turns are alternatives."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("sessions", sa.Column("branch_of", sa.BigInteger()))
    op.create_index("ix_sessions_branch_of", "sessions", ["branch_of"])
    for name in ("original", "instead_of"):
        op.add_column("turns", sa.Column(name, sa.BigInteger()))


def downgrade() -> None:
    """Drop them, without a copy of the tables: the triggers of turns would go with it."""
    for name in ("instead_of", "original"):
        op.drop_column("turns", name)
    op.drop_index("ix_sessions_branch_of", "sessions")
    op.drop_column("sessions", "branch_of")
