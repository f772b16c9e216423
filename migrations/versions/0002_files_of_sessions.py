"""What people should know of a session's files: that they are about to go, or gone."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("sessions", sa.Column("files", sa.Text()))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("sessions") as table:
        table.drop_column("files")
