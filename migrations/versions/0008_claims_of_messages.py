"""Which bot took a message, for which session, so that none is lost unsaid when it dies."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for name in ("owner", "request_id"):
        added = sa.Column(name, sa.String(128), nullable=False, server_default="")
        op.add_column("events", added)
    op.add_column("events", sa.Column("address", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("events") as table:
        for name in ("address", "request_id", "owner"):
            table.drop_column(name)
