"""The process of a host: kernels that outlive the bot, offered to it over a socket.

It runs a local host of `hosts` and puts a journal beside each execution. Never here: people,
models, the store, secrets: the settings that it gets are those of kernels. The bot's end of the
wire is `hosts.remote_host`.
"""
