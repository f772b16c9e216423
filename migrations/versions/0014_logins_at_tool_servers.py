"""Accounts at MCP servers that people let the bot use, and their logins that have begun."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_NAMES = ("platform", "workspace", "person", "server")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint(*_NAMES, name="uq_accounts_platform_workspace_person_server"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "logins",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.String(128), nullable=False) for name in _NAMES),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_logins"),
        sa.UniqueConstraint("digest", name="uq_logins_digest"),
        sa.UniqueConstraint(*_NAMES, name="uq_logins_platform_workspace_person_server"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop them, and everything in them."""
    op.drop_table("logins")
    op.drop_table("accounts")
