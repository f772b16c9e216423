"""Hosts: where kernels and workspaces live, in this process or another one, as sessions see them.

Sessions know only `ports`; the other modules implement it, and `tests/contracts/test_hosts` checks
them. Never here: what code means, people, models, the store. Kernels themselves are in `kernels`.
"""
