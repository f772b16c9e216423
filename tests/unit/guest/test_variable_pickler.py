"""Odd things that sessions hold: most come back, and each of the others is named with a reason.

`variable_pickler` replaces these where they lie, or what they lie in.
"""

import json
import pathlib
import subprocess
import sys

from bench import snapshot_edge_cases

BAR = 86

# One process saves, as a kernel does, and another one brings back.
SCRIPT = """
import json, os, sys, warnings
import numpy, pandas
from bench import snapshot_edge_cases
from interpreter_bot.guest import snapshots, snapshot_readers
warnings.simplefilter("ignore")
directory = sys.argv[1]
saver = os.fork()
if not saver:
    names = {"__name__": "__main__"}
    exec(compile(snapshot_edge_cases.CODE, "<cell 1>", "exec"), names)
    wanted = [name for name in names if not name.startswith("__")]
    child = snapshots.start_saving(names, wanted, directory, 1, seconds=100.0, max_bytes=1 << 30)
    os.waitpid(child, 0)
    os._exit(0)
os.waitpid(saver, 0)
names = {"__name__": "__main__"}
failed = snapshot_readers.restore(names, directory, 1)
print(json.dumps([sorted(names), failed]), flush=True)
os._exit(0)
"""


def test_odd_objects_come_back_or_are_named_with_a_reason(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=pathlib.Path(snapshot_edge_cases.__file__).parents[1],
        capture_output=True,
        check=True,
        timeout=300,
    )
    back, failed = json.loads(done.stdout)
    manifest = json.loads((tmp_path / "1" / "manifest.json").read_text())
    lost = manifest["lost"] | failed
    kept = set(snapshot_edge_cases.NAMES).intersection(back)
    assert set(snapshot_edge_cases.NAMES) - kept == set(snapshot_edge_cases.NAMES).intersection(
        lost
    )
    assert all(lost.values()), lost
    assert not failed, "what is lost is known when it is saved"
    assert len(kept) >= BAR, sorted(lost)
    assert {"huge_string", "holder", "self_object", "closure", "lock", "Plain"} <= kept
    assert {"holder"} <= manifest["partly"].keys()
