"""What the next bot needs to go on with a turn, when its execution outlives this bot."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("turns", sa.Column("progress", sa.Text()))
    hosted = sa.Column("hosted_id", sa.String(128), nullable=False, server_default="")
    op.add_column("executions", hosted)
    heard = sa.Column("heard", sa.Integer(), nullable=False, server_default="0")
    op.add_column("executions", heard)


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("executions") as table:
        table.drop_column("heard")
        table.drop_column("hosted_id")
    with op.batch_alter_table("turns") as table:
        table.drop_column("progress")
