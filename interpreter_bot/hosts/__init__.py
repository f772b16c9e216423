"""Hosts: where kernels and workspaces live, seen from sessions; this process or another one.

`ports` is what sessions know; what else is here keeps its promises, as `tests/contracts/test_hosts`
checks. Never here: what code means, people, models, the store. Kernels themselves are in `kernels`.
"""
