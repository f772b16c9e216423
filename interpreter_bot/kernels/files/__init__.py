"""A session's directory, which hostile code writes to at any moment.

No path is trusted twice: everything is opened relative to a descriptor, below the directory, and
never through a link. No other package of the bot opens a session's files.
"""
