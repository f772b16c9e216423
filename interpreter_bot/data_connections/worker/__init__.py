"""The process that asks one database, or reads one place of files: the only one that parses it.

Here belong drivers, one module each, and Arrow. It knows the address of its one connection and
nothing else of the bot. Never: who may ask, or storage.
"""
