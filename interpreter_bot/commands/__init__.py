"""One module a command: its options, and what it does with the settings and them.

Each has `add_to`, which adds its parser, and `run`, which returns the exit status. What a command
prints is in `platforms/console`; what it works with is built by `app`.
"""
