"""Start and confinement of kernels, from the host's side.

This package has fork servers, cgroups, and the host's part of the sandbox.
`interpreter_bot.kernels` executes code, reads outputs and keeps workspaces; `interpreter_bot.guest`
runs inside the sandbox.
"""
