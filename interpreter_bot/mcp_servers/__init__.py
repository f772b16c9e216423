"""MCP servers whose tools code can call: connections, definitions of tools, accepted definitions.

Servers are hostile: their texts are bounded, stripped of hidden characters, and used only once an
administrator has accepted exactly that text. `program_transport` starts servers that are programs,
each in a sandbox of its own. Secrets of servers stay here, except those that a program is given.
"""
