"""Access to a session's directory, which hostile code may write to at any moment.

Code may change a path between two uses. So everything is opened relative to a descriptor, below the
directory, and never through a link. No other package of the bot opens a session's files.
"""
