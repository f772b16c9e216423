"""Platforms: chat networks, the web page, the command line, agents of others.

A platform translates messages into requests and replies into messages, and never decides. It knows
`sessions` and the leaves, nothing deeper, and no other platform.
"""
