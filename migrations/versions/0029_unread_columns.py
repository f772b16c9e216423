"""Drop two columns that nothing reads: the media type of artifacts, and the boot id of hosts."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the columns."""
    op.drop_column("artifacts", "media_type")
    op.drop_column("hosts", "boot_id")


def downgrade() -> None:
    """Refuse, because the values are gone."""
    raise NotImplementedError
