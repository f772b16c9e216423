"""How a kernel comes to be and what holds it: never what code means.

Fork servers, the walls as the host sees them, control groups and the watching of what a
session uses live here. Executing code, reading outputs and keeping workspaces do not: that
story continues in `interpreter_bot.kernels`, and inside the walls in `interpreter_bot.guest`.
"""
