"""The process for one database or one place of files, the only one that parses its data.

It has the drivers, one in each module, and Arrow. It knows only the address of its connection. It
has no permissions and no storage.
"""
