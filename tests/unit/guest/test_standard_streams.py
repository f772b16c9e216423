"""What programs write to descriptors 1 and 2 of a kernel, each time in a process of its own."""

import json
import subprocess
import sys

_BEGIN = """
import json, os
from interpreter_bot.guest import standard_streams

class Shown:
    def __init__(self):
        self.texts = []

    def write_for(self, owner, text):
        if text:
            self.texts.append([owner["number"], text])

out, err = Shown(), Shown()
descriptors = standard_streams.Descriptors((out, err))
answers = open(os.dup(1), "w")
def count():
    return len(os.listdir("/proc/self/fd"))
"""


def _run(code):
    done = subprocess.run([sys.executable, "-c", _BEGIN + code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_the_last_execution_had_open_is_closed_before_the_next_begins():
    found = _run("""
counts = []
for number in range(3):
    descriptors.begin({"number": number})
    counts.append(count())
answers.write(json.dumps(counts))
""")
    assert found[0] == found[1] == found[2]


def test_what_a_left_over_process_writes_belongs_to_its_own_execution():
    found = _run("""
descriptors.begin({"number": 1})
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.read(reading, 1)
    os.write(1, b"late")
    os._exit(0)
os.write(1, b"first")
os.write(2, b"error")
descriptors.begin({"number": 2})
os.write(1, b"second")
os.close(writing)
os.wait()
descriptors.read()
answers.write(json.dumps([sorted(out.texts), err.texts]))
""")
    assert found == [[[1, "first"], [1, "late"], [2, "second"]], [[1, "error"]]]


def test_a_reading_amid_another_closes_nothing_under_it():
    found = _run("""
import tempfile
stranger = tempfile.TemporaryFile()
stranger.write(b"of a stranger")
stranger.seek(0)
show, kept = out.write_for, []
def read_again(owner, text):
    show(owner, text)
    if not kept:
        kept.append("")
        descriptors.read()
        # Where a pipe was closed, this takes its number.
        kept.append(os.dup(stranger.fileno()))
out.write_for = read_again
descriptors.begin({"number": 1})
os.write(1, b"first")
before = count()
descriptors.begin({"number": 2})
answers.write(json.dumps([out.texts, err.texts, count() - before - 1, stranger.tell()]))
""")
    assert found == [[[1, "first"]], [], 0, 0]
