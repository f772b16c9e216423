"""The Jupyter protocol over ZMTP, bounded against a hostile kernel.

libzmq gathers a whole multipart message before the application sees it, so the bytes are read here:
`zmtp` decodes, `sockets` read on demand, `jupyter_messages` check, and count values before they
parse, `clients` hold one kernel's channels. Nothing here interprets messages;
`kernels.execution_streams` does.
"""
