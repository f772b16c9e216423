"""The Jupyter protocol over ZMTP, bounded against a hostile kernel.

libzmq collects a whole multipart message before the application sees it, so this package reads the
bytes itself: `zmtp` decodes frames, `sockets` reads on demand, `jupyter_messages` checks and parses
messages, `clients` holds one kernel's channels. `kernels.execution_streams` interprets messages.
"""
