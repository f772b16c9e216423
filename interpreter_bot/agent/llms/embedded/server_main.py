"""Child process: serve one GGUF file over HTTP on loopback until the parent process is gone.

Run as a file with `python -I`, so that nothing of ours is imported and nothing of the caller's
environment counts. One line of JSON comes on standard input: `model` (path), `alias`, `key`,
`context_tokens`. One line goes out: `{"address": …}` once requests are answered, or
`{"error": …}`. The end of standard input is the end of the process.
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
# Niceness: other processes come first.
_NICENESS = 10
# OOM score: if memory runs out, this goes before the bot and its kernels.
_OOM_SCORE = b"800"
_CACHE_MIB = 512


def main() -> None:
    """Serve the model until standard input ends."""
    _step_back()
    order = json.loads(sys.stdin.buffer.readline())
    # The engine prints to standard output; our line of JSON is not to be mixed with it.
    words = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        server = _serve(order)
    except Exception as error:  # any error of the engine, and a missing library
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=words, flush=True)
        os._exit(1)
    print(json.dumps({"address": server.listening_address}), file=words, flush=True)
    while os.read(0, 4096):
        pass
    # The engine's threads need no tidy end, and take seconds over one.
    os._exit(0)


def _step_back() -> None:
    """Die with the parent, gain no privileges, and give processor and memory to others first."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if parent != os.getppid():
        # The parent died before the death signal was set.
        os._exit(1)
    os.nice(_NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(_OOM_SCORE)


def _serve(order: dict[str, Any]) -> Any:  # noqa: ANN401 - the engine has no types
    # Imported here, so that its absence is reported; the type checker does not know the extra.
    xllamacpp = importlib.import_module("xllamacpp")

    parameters = xllamacpp.CommonParams()
    parameters.model.path = order["model"]
    parameters.model_alias = {order["alias"]}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [order["key"]]
    parameters.n_parallel = 1
    parameters.n_ctx = order["context_tokens"]
    threads = len(os.sched_getaffinity(0))
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.n_gpu_layers = 0
    parameters.use_jinja = True
    # The prompt caches of other sessions, so that they need not be read again.
    parameters.cache_ram_mib = _CACHE_MIB
    # Never look for files elsewhere, and serve no page of its own.
    parameters.offline = True
    parameters.ui = False
    parameters.cors_origins = ""
    parameters.cors_credentials = False
    parameters.endpoint_slots = False
    return xllamacpp.Server(parameters)


if __name__ == "__main__":
    main()
