"""What is remembered: conversations, their turns, what was run, shown, made and spent.

One module per aggregate; what leaves here is a frozen record, never a row. Nothing else in the
bot knows sqlalchemy. Never here: what is worth remembering (that is `sessions`), and the files of
a workspace (`kernels`). "Transaction" is our word for SQLAlchemy's session: "session" is taken.
`databases` is the door; the schema's history continues in `migrations/`.
"""
