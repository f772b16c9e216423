"""The command line as a platform: it reads cells and lines, and prints outputs, text or JSON.

The commands themselves are in `commands`.
"""
