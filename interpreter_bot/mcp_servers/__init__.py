"""MCP servers whose tools code can call: connections, definitions of tools, accepted definitions.

Servers may be hostile: their texts are bounded, stripped of hidden characters, and used only once
an administrator has accepted exactly that text. `program_transport` starts servers that are
programs, each in a sandbox of its own. Only such programs get secrets; kernels and models do not.
"""
