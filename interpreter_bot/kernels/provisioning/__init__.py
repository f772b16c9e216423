"""Start and confinement of kernels, as seen from the host; never what code means.

Fork servers, the sandbox as the host sees it and cgroups live here. Executing code, reading outputs
and keeping workspaces do not: that continues in `interpreter_bot.kernels`, and inside the sandbox
in `interpreter_bot.guest`.
"""
