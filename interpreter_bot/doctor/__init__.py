"""Diagnosis of this machine's sandbox, by trying it on real kernels.

Above `kernels`, beside `app`: the report at the bot's start and of `interpreter-bot doctor`. The
checks inside a kernel (`in_kernel_*`) are sent to it as source, and import nothing else of this
project. Limits on sessions are not tried here; `tests/attacks` proves them.
"""
