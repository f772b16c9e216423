"""Search of what was said in turns, and marks of sessions in lists.

SQLite's index, `turn_words`, is a table that triggers keep; it has no copy of the words itself.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_OLD = (
    "INSERT INTO turn_words(turn_words, rowid, request, answer)"
    " VALUES ('delete', old.id, old.request, old.answer);"
)
_NEW = "INSERT INTO turn_words(rowid, request, answer) VALUES (new.id, new.request, new.answer);"
_SQLITE = (
    "CREATE VIRTUAL TABLE turn_words"
    " USING fts5(request, answer, content='turns', content_rowid='id')",
    "INSERT INTO turn_words(turn_words) VALUES ('rebuild')",
    f"CREATE TRIGGER turn_words_begun AFTER INSERT ON turns BEGIN {_NEW} END",
    f"CREATE TRIGGER turn_words_gone AFTER DELETE ON turns BEGIN {_OLD} END",
    "CREATE TRIGGER turn_words_changed AFTER UPDATE OF request, answer ON turns"
    f" BEGIN {_OLD} {_NEW} END",
)
_POSTGRESQL = (
    "CREATE INDEX turn_words ON turns USING gin (to_tsvector('simple'::regconfig,"
    " substr(request, 1, 50000) || ' ' || substr(answer, 1, 50000)))"
)


def upgrade() -> None:
    """Add them."""
    with op.batch_alter_table("sessions") as table:
        table.add_column(sa.Column("mark", sa.String(16), nullable=False, server_default=""))
    if op.get_context().dialect.name != "sqlite":
        op.execute(_POSTGRESQL)
        return
    for statement in _SQLITE:
        op.execute(statement)


def downgrade() -> None:
    """Drop them."""
    if op.get_context().dialect.name == "sqlite":
        for name in ("begun", "gone", "changed"):
            op.execute(f"DROP TRIGGER turn_words_{name}")
        op.execute("DROP TABLE turn_words")
    else:
        op.drop_index("turn_words")
    with op.batch_alter_table("sessions") as table:
        table.drop_column("mark")
