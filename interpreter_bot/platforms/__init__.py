"""Where requests come from and replies go: chat networks, the web page, the command line.

A platform translates and never decides. It knows `sessions` and the leaves, nothing deeper, and
no other platform.
"""
