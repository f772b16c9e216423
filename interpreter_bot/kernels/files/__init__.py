"""A session's directory, which hostile code writes to at any moment.

No path is trusted twice: everything is opened relative to a descriptor, below the directory, and
never through a link. Nothing else of the bot opens a file of a session.
"""
