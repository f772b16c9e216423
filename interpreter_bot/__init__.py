"""interpreter-bot: a self-hosted code interpreter for the chats where teams already talk.

The largest packages, top to bottom (all are in ARCHITECTURE.md): `cli` parses the command line,
`commands` has one module per command, `app` opens everything once, `doctor` diagnoses the sandbox,
`platforms` translate chat networks, `sessions` decide what happens when, `agent` talks to the
language model, `kernels` run code in a sandbox, `store` is the database, `text` has what all of
them do to text. Imports only point down; `values`, `errors`, `settings` and `logs` are leaves that
all may import. `guest` is the exception: it runs inside the sandbox and imports no other package.
"""
