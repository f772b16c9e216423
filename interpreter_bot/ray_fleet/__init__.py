"""Hosts on the nodes of a Ray cluster: one is started on each node, and listed for bots.

Ray only starts hosts and reports their addresses. It runs no kernel and carries no output of code.
Bots do not know Ray: they read the addresses from a table, which stays valid while Ray is down.
Only `commands.fleet` imports this package, and only this package imports Ray.
"""
