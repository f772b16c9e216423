"""The Jupyter protocol over ZMTP, bounded against a hostile kernel.

libzmq gathers a whole multipart message before anybody may look at it, so the bytes are read here:
`zmtp` decodes, `sockets` read on demand, `jupyter_messages` check, `clients` hold one kernel's
channels. Nothing here knows what a message means; `kernels.execution_streams` does.
"""
