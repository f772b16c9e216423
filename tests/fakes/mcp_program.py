"""An MCP server as a program of the standard library: its tools explore the sandbox, and crash."""

import json
import os
import socket
import sys
import tempfile  # noqa: F401 - for "try"
import time


def try_action(action):
    """Return the repr of an action's result, or the name of its error."""
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__


def call_tool(name, arguments):
    """Return the text of a tool's result."""
    if name == "crash":
        os._exit(3)
    if name == "flood":
        sys.stdout.write("x" * 10_000_000)
        sys.stdout.flush()
    if name == "memory":
        return try_action(lambda: len(bytearray(arguments["bytes"])))
    if name == "leave":
        # The child would outlive its parent, and keep the streams open.
        if not os.fork():
            os.setsid()
            time.sleep(600)
            os._exit(0)
        return "left"
    if name == "grasp":
        # Like "spread", but this program ends with the first child that gets no memory.
        for _ in range(arguments["count"]):
            if not os.fork():
                memory = bytearray(arguments["bytes"])
                time.sleep(600 + len(memory[:0]))
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]) & 0xFF)
    if name == "spread":
        for _ in range(arguments["count"]):
            if not os.fork():
                memory = bytearray(arguments["bytes"])
                time.sleep(600 + len(memory[:0]))
                os._exit(0)
        time.sleep(600)
    if name == "hang":
        time.sleep(600)
    if name == "try":
        return try_action(lambda: eval(arguments["code"]))
    if name == "environment":
        return os.environ["KEY"]
    return json.dumps(
        {
            "host": try_action(
                lambda: socket.create_connection(("127.0.0.1", arguments["port"]), 5)
            ),
            "file": try_action(lambda: open(arguments["file"]).read()),
            "write": try_action(lambda: open("/usr/written", "w")),
            "own": try_action(lambda: open("own", "w").write("x")),
            "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
            "kill": try_action(lambda: os.kill(arguments["pid"], 0)),
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
    text = call_tool(message["params"]["name"], message["params"].get("arguments", {}))
    return {"content": [{"type": "text", "text": text}]}


sys.stdout.write("a banner that is no message\n")
sys.stderr.write("begun\n")
sys.stderr.flush()
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] not in ("initialize", "tools/list", "tools/call"):
        response = {"error": {"code": -32601, "message": "Method not found"}}
    else:
        response = {"result": answer(request)}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"]} | response) + "\n")
    sys.stdout.flush()
