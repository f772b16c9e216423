"""Sessions: the service of all platforms, and the course of every turn.

Here belong the order of turns, waiting, stopping, closing kernels. Never: a network's syntax (that
is `platforms`), how code is run (`kernels`), what a model is asked (`agent`). `ports` says what a
platform implements, `session_service` what it calls; `unrecorded_code_runs` is the shortest way
through this package.
"""
