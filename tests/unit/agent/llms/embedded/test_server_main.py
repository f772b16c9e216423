"""What runs in the model's process, with a library that stands in for the engine's."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from interpreter_bot.agent.llms.embedded import server_process

SCRIPT = pathlib.Path(server_process.__file__).with_name("server_main.py")
CONFIGURATION = {"model": "/m.gguf", "alias": "m", "key": "k", "context_tokens": 4096}
LIBRARY = """
import types
class CommonParams:
    def __init__(self):
        self.model = types.SimpleNamespace(path="")
        self.cpuparams, self.cpuparams_batch = types.SimpleNamespace(), types.SimpleNamespace()
class Server:
    def __init__(self, parameters):
        print("the engine chatters on standard output")
        if parameters.model.path == "/bad.gguf":
            raise RuntimeError("no such model")
        words = {k: str(v) for k, v in vars(parameters).items()}
        words["threads"] = str(parameters.cpuparams.n_threads)
        self.listening_address = words
"""


@pytest.fixture
def started(tmp_path):
    """Start it with a configuration; it is gone when the test ends."""
    (tmp_path / "xllamacpp.py").write_text(LIBRARY)
    running = []

    def start(library=tmp_path, **configuration):
        process = subprocess.Popen(
            [sys.executable, "-S", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": str(library)},
        )
        running.append(process)
        process.stdin.write(json.dumps({**CONFIGURATION, **configuration}).encode() + b"\n")
        process.stdin.flush()
        return process, json.loads(process.stdout.readline())

    yield start
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def test_it_serves_on_loopback_for_whoever_has_the_key(started):
    _, word = started()
    served = word["address"]
    assert served["hostnames"] == "['127.0.0.1']"
    assert served["port"] == "0"
    assert served["api_keys"] == "['k']"
    assert served["n_ctx"] == "4096"
    assert served["threads"] == str(len(os.sched_getaffinity(0)))
    assert (served["ui"], served["offline"], served["cors_origins"]) == ("False", "True", "")


def test_it_ends_with_its_standard_input(started):
    process, _ = started()
    process.stdin.close()
    assert process.wait(5) == 0


def test_it_steps_back_before_everybody_else(started):
    process, _ = started()
    here = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(here + 10, 19)
    assert "NoNewPrivs:\t1" in pathlib.Path(f"/proc/{process.pid}/status").read_text()
    assert int(pathlib.Path(f"/proc/{process.pid}/oom_score_adj").read_text()) == 800


@pytest.mark.parametrize(
    ("configuration", "library", "sentence"),
    [
        ({"model": "/bad.gguf"}, None, "RuntimeError: no such model"),
        ({}, "/nowhere", "ModuleNotFoundError: No module named 'xllamacpp'"),
    ],
)
def test_what_goes_wrong_is_its_one_word(started, configuration, library, sentence):
    process, word = started(**configuration, **({"library": library} if library else {}))
    assert word == {"error": sentence}
    assert process.wait(5) == 1


def test_it_dies_with_its_parent(tmp_path):
    (tmp_path / "xllamacpp.py").write_text(LIBRARY)
    # The pipe stays open in a third process, so only the signal can end it.
    code = f"""
import json, os, subprocess, sys, time
r, w = os.pipe()
child = subprocess.Popen([sys.executable, "-S", {str(SCRIPT)!r}], stdin=r, stdout=subprocess.PIPE,
    env={{"PYTHONPATH": {str(tmp_path)!r}}})
os.write(w, json.dumps({CONFIGURATION!r}).encode() + b"\\n")
child.stdout.readline()
keeper = subprocess.Popen(["sleep", "120"], pass_fds=[w], stdout=subprocess.DEVNULL)
print(child.pid, keeper.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    child, keeper = map(int, done.stdout.split())
    try:
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up and _runs(child):
            time.sleep(0.02)
        assert not _runs(child)
    finally:
        os.kill(keeper, 9)


def _runs(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
