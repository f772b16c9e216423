"""How hostile code speaks for itself: past ipykernel, on its sockets, with its key."""

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
"""What it has: the key, both sockets, the request and the identity of the bot."""
BY_HAND = (
    PRELUDE
    + """
import os, select, socket

def own(channel, is_listening=False):
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:
            continue
        try:
            found = socket.socket(fileno=copy)
            is_it = str(found.getsockname()).endswith(f"-{channel}")
        except OSError:
            # Left open, they would double with each call until there were no more.
            os.close(copy)
            continue
        if is_it and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == is_listening:
            return found

def push(there, data):
    view = memoryview(data)
    while view:
        select.select([], [there], [])
        view = view[there.send(view):]

def frame(size, more=True):
    return bytes((3 if more else 2,)) + size.to_bytes(8, "big")

SHELL, IOPUB, STDIN = 1, 2, 3
MEBIBYTE = bytes(1 << 20)
time.sleep(0.1)  # What libzmq says of the beginning comes out whole.
"""
)
"""Past libzmq as well: the descriptors themselves, on which it speaks ZMTP by hand."""
