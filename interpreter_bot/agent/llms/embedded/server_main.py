"""Child process: serve one GGUF file over HTTP on loopback until the parent process is gone.

Run as a file with `python -I`, so that it imports nothing of the bot and ignores the environment.
It reads one line of JSON from standard input, with `model` (a path), `alias`, `key` and
`context_tokens`. It writes one line of JSON: `{"address": …}` once the server answers requests, or
`{"error": …}`. When standard input is closed, the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
# Other processes get the processor first.
_NICENESS = 10
# If memory runs out, this process is killed before the bot and its kernels.
_OOM_SCORE = b"800"
_CACHE_MIB = 512


def main() -> None:
    """Serve the model until standard input ends."""
    _restrict_process()
    configuration = json.loads(sys.stdin.buffer.readline())
    # The engine prints to standard output, which is redirected to standard error. The line of JSON
    # goes to a copy of the original standard output.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        server = _start_server(configuration)
    except Exception as error:  # the engine may raise anything, and may not be installed
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=output, flush=True)
        os._exit(1)
    print(json.dumps({"address": server.listening_address}), file=output, flush=True)
    while os.read(0, 4096):
        pass
    # Without joining the engine's threads, which would take seconds.
    os._exit(0)


def _restrict_process() -> None:
    """End with the parent, forbid new privileges, and leave processor and memory to others."""
    parent_pid = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if parent_pid != os.getppid():
        # The parent ended before the signal was set.
        os._exit(1)
    os.nice(_NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(_OOM_SCORE)


def _start_server(configuration: dict[str, Any]) -> Any:  # noqa: ANN401 - the engine has no types
    # Imported here, so that `main` reports a missing library. The type checker does not have it.
    xllamacpp = importlib.import_module("xllamacpp")

    parameters = xllamacpp.CommonParams()
    parameters.model.path = configuration["model"]
    parameters.model_alias = {configuration["alias"]}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [configuration["key"]]
    parameters.n_parallel = 1
    parameters.n_ctx = configuration["context_tokens"]
    thread_count = len(os.sched_getaffinity(0))
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = thread_count
    parameters.n_gpu_layers = 0
    parameters.use_jinja = True
    # Keep the processed prompts of several sessions.
    parameters.cache_ram_mib = _CACHE_MIB
    # Fetch no files from the network, and serve no web page.
    parameters.offline = True
    parameters.ui = False
    parameters.cors_origins = ""
    parameters.cors_credentials = False
    parameters.endpoint_slots = False
    return xllamacpp.Server(parameters)


if __name__ == "__main__":
    main()
