"""interpreter-bot: a self-hosted code interpreter for the chats where teams already talk.

The rooms, top to bottom: `cli` reads the command line, `app` builds everything once,
`platforms` translate chat networks, `sessions` decide what happens when, `agent` talks to
the language model, `kernels` run code behind walls, `store` remembers, `text` has what all
of them do to text. Imports only point down; `values`, `errors`, `settings` and `logs` are
leaves that everyone may import. `guest` is the odd one out: it runs inside the sandbox and
imports nothing of ours.
"""
