"""The process of a host: its kernels outlive the bot, which uses them over a socket.

It runs a local host of `hosts`, with a journal for each execution. It knows no people, models,
store or secrets, and gets only the settings of kernels. The bot's end of the connection is
`hosts.remote_host`.
"""
