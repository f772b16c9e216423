"""What code in a kernel may reach outside: the bot's end of its doors.

Here belong a policy for each conversation, the proxy that code speaks to, the one check of every
address that is dialled, and what is added to requests that code must not know. Never: who
may decide on a policy (that is the settings' and, through sessions, people's), or storage.
"""
