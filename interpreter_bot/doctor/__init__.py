"""What protects this machine, found by trying it on a real kernel.

Above `kernels`, beside `app`: the report of a start and of `interpreter-bot doctor`. What is tried
inside a kernel (`wall_checks`, `limit_checks`) is sent to it as source and imports nothing of ours.
"""
