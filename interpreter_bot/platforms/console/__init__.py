"""The command line as a platform: cells of files and lines of a chat in, outputs or JSON out.

The commands are in `commands`; this package reads what people enter, and prints values.
"""
