"""Access of kernels' code to the outside: the bot's end of their doors.

Here belong the policy of each conversation, the proxy that code uses, the one check of every
address before it is dialled, and the secrets that are added to requests. Never: decisions about
policies (the settings and, through sessions, people make them), or storage.
"""
