"""Persistence: conversations, their turns, executions, outputs, artifacts and usage.

One module per aggregate; it returns frozen records, never rows. No other module of the bot's
process imports sqlalchemy. Never here: what is worth storing (that is `sessions`), and the files of
a workspace (`kernels`). "Transaction" stands for SQLAlchemy's session: "session" is taken.
`databases` is the entry; the schema's history is in `migrations/`.
"""
