"""An MCP server as a program of nothing but the standard library: it looks around, and crashes."""

import json
import os
import socket
import sys
import tempfile  # noqa: F401 - for "try"
import time


def tried(action):
    """Return what an action comes to, in words."""
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__


def called(name, given):
    """Return the text of a tool's result."""
    if name == "crash":
        os._exit(3)
    if name == "flood":
        sys.stdout.write("x" * 10_000_000)
        sys.stdout.flush()
    if name == "memory":
        return tried(lambda: len(bytearray(given["bytes"])))
    if name == "leave":
        # One that would outlive its parent, and keep its streams open.
        if not os.fork():
            os.setsid()
            time.sleep(600)
            os._exit(0)
        return "left"
    if name == "grasp":
        # As "spread", and it ends with the first that cannot have so much.
        for _ in range(given["count"]):
            if not os.fork():
                held = bytearray(given["bytes"])
                time.sleep(600 + len(held[:0]))
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]) & 0xFF)
    if name == "spread":
        for _ in range(given["count"]):
            if not os.fork():
                held = bytearray(given["bytes"])
                time.sleep(600 + len(held[:0]))
                os._exit(0)
        time.sleep(600)
    if name == "hang":
        time.sleep(600)
    if name == "try":
        return tried(lambda: eval(given["code"]))
    if name == "environment":
        return os.environ["KEY"]
    return json.dumps(
        {
            "host": tried(lambda: socket.create_connection(("127.0.0.1", given["port"]), 5)),
            "file": tried(lambda: open(given["file"]).read()),
            "write": tried(lambda: open("/usr/written", "w")),
            "own": tried(lambda: open("own", "w").write("x")),
            "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
            "kill": tried(lambda: os.kill(given["pid"], 0)),
            "secrets": sorted(name for name in os.environ if "SECRET" in name),
        }
    )


def answer(message):
    """Return the result of a request."""
    if message["method"] == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "program", "version": "1"},
        }
    if message["method"] == "tools/list":
        names = (
            "look",
            "crash",
            "flood",
            "memory",
            "leave",
            "environment",
            "spread",
            "grasp",
            "hang",
            "try",
        )
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": name, "inputSchema": schema} for name in names]}
    text = called(message["params"]["name"], message["params"].get("arguments", {}))
    return {"content": [{"type": "text", "text": text}]}


sys.stdout.write("a banner that is no message\n")
sys.stderr.write("begun\n")
sys.stderr.flush()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] not in ("initialize", "tools/list", "tools/call"):
        told = {"error": {"code": -32601, "message": "Method not found"}}
    else:
        told = {"result": answer(asked)}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | told) + "\n")
    sys.stdout.flush()
