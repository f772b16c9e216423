"""MCP servers whose tools code can call: connections, what they offer, what of it was accepted.

All that a server says is hostile: bounded, stripped of what hides, and used only once an
administrator accepted exactly that. Servers that are programs are started by `program_transport`,
in sandboxes of their own. Secrets of servers stay in here, but for those that a program is given.
"""
