"""Data connections, by which code queries databases and reads object stores through the bot.

Here belong the rules of who may use a connection, the processes that send queries (`worker`),
descriptions of tables for models, and limits. The bot never parses results, but passes them on
unread. No secret may get into text for a kernel, a model or a person.
"""
