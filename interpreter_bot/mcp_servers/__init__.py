"""MCP servers whose tools code can call: connections, what they offer, what of it was accepted.

All that a server says is hostile: bounded, stripped of what hides, and used only once an
administrator accepted exactly that. Secrets of servers stay in here.
"""
