"""Preludes for hostile code that sends messages itself, on ipykernel's sockets and with its key."""

PRELUDE = """
import json, threading, time, uuid, zmq
kernel = get_ipython().kernel
session, iopub, shell = kernel.session, kernel.iopub_socket, kernel.shell_stream.socket
parent = kernel.get_parent("shell")
ident = kernel._shell_parent_ident.get()

def publish(kind, content, parent=parent):
    session.send(iopub, kind, content, parent=parent, ident=b"topic")

def reply(kind, content, parent=parent):
    session.send(shell, kind, content, parent=parent, ident=ident)

def raw(socket, *parts, prefix=(b"topic",), signature=None):
    parts = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in parts]
    signature = session.sign(parts) if signature is None else signature
    socket.send_multipart([*prefix, b"<IDS|MSG>", signature, *parts])

def header(kind):
    return {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "s", "username": "u",
            "date": "2026-01-01T00:00:00Z", "version": "5.3"}

about = {"msg_id": parent["header"]["msg_id"]}
stream = {"name": "stdout", "text": "forged"}
"""
"""Gives code the key, both sockets, the request and the bot's identity."""
ZMTP_PRELUDE = (
    PRELUDE
    + """
import os, select, socket

def find_socket(channel, is_listening=False):
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:
            continue
        try:
            candidate = socket.socket(fileno=copy)
            is_channel = str(candidate.getsockname()).endswith(f"-{channel}")
        except OSError:
            # Each call duplicates all descriptors, so unclosed ones would soon use them up.
            os.close(copy)
            continue
        accepts = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if is_channel and accepts == is_listening:
            return candidate

def push(peer, data):
    view = memoryview(data)
    while view:
        select.select([], [peer], [])
        view = view[peer.send(view):]

def frame(size, more=True):
    return bytes((3 if more else 2,)) + size.to_bytes(8, "big")

SHELL, IOPUB, STDIN = 1, 2, 3
MEBIBYTE = bytes(1 << 20)
time.sleep(0.1)  # libzmq sends its message about the start whole first.
"""
)
"""Also bypasses libzmq: code writes ZMTP itself to the descriptors of the sockets."""
