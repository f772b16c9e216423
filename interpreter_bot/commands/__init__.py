"""Subcommands, one module each: what it does with the settings and its options.

Each has `run`, which returns the exit status; the options of all are in `options`, what `ask` and
`execute` do at Ctrl-C in `console_runs`. What a command prints is in `platforms/console`;
what it works with is opened by `app`.
"""
