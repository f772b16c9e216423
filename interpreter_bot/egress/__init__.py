"""Access of code in kernels to outside hosts: the bot's end of their doors.

Here belong the policy of each conversation, the proxy that code uses, the only check of addresses
before they are dialled, and the secrets that are added to requests. Policies are decided elsewhere:
by the settings and, through sessions, by people. Nothing is stored here.
"""
