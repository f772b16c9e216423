"""Diagnosis of this machine's sandbox, found by trying it on a real kernel.

Above `kernels`, beside `app`: the report at a start and of `interpreter-bot doctor`. The checks
inside a kernel (`in_kernel_*`) are sent to it as source and import nothing else of this project.
What bounds a session is not tried here: `tests/attacks` prove the limits.
"""
