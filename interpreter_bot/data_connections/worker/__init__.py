"""Worker process for one data connection, the only process that parses its data.

It has Arrow and the drivers, one in each module, and knows only the address of its connection. It
has no permissions and no storage.
"""
