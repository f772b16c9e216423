"""Data that code may query through the bot: databases, and places of files.

Here belong who may use which connection, the processes that ask (`worker`), what models are told
of tables, and the limits. Never: results that the bot reads itself (it passes them on unread),
or secrets in what a kernel, a model or a person is told.
"""
