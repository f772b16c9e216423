"""Messages of answers, which the next bot goes on in."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deliveries",
        sa.Column("platform", sa.String(128), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("nonce", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(128), nullable=False),
        sa.Column("tried", sa.Double(), nullable=False),
        sa.Column("message", sa.String(128), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("platform", "request_id", "position", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_tried", "deliveries", ["tried"])


def downgrade() -> None:
    op.drop_table("deliveries")
