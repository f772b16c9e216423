"""The command line as a platform: cells read from files, outputs printed or written as JSON.

What the commands are is said in `cli`; what is here takes values and prints them.
"""
