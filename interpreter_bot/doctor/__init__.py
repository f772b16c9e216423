"""Diagnosis of this machine's sandbox, found by trying it on a real kernel.

Above `kernels`, beside `app`: the report at a start and of `interpreter-bot doctor`. The checks
inside a kernel (`wall_checks`, `limit_checks`) are sent to it as source and import nothing else of
this project.
"""
