"""A process in place of the real engine: the same messages on its pipes, and a server.

It runs as a single file. The "model" is a JSON file that tells it what to do: `{"fails":
"sentence"}`, `{"kills": signal}`, `{"hangs": true}`, or `{"says": "text"}`. With `{"notes": path}`
it writes its environment, arguments and configuration to that file.
"""

import http.server
import json
import os
import sys
import threading
import time

configuration = json.loads(sys.stdin.buffer.readline())
with open(configuration["model"], "rb") as file:
    assert file.read(4) == b"GGUF"
    behavior = json.loads(file.read() or b"{}")


def send_message(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {configuration['key']}":
            self.send_error(401)
            return
        delta = {"role": "assistant", "content": behavior.get("says", "Hello.")}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        events = [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


if "notes" in behavior:
    with open(behavior["notes"], "a") as notes:
        started = {"pid": os.getpid(), "environment": dict(os.environ), "argv": sys.argv}
        notes.write(json.dumps({**started, "configuration": configuration}) + "\n")
if "fails" in behavior:
    sys.stderr.write("the engine says why\n")
    send_message(error=behavior["fails"])
    sys.exit(1)
if "kills" in behavior:
    os.kill(os.getpid(), behavior["kills"])
if behavior.get("hangs"):
    time.sleep(600)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
send_message(address=f"http://127.0.0.1:{server.server_port}")
while os.read(0, 100):
    pass
os._exit(0)
