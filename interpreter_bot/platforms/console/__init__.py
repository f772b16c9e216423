"""The command line as a platform: cells read from files, outputs printed or written as JSON.

The commands are in `commands`; this package takes values and prints them.
"""
