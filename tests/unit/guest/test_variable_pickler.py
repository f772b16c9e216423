"""Unusual variables: most are restored, and each of the others is lost with a reason.

`variable_pickler` replaces objects that cannot be pickled, or the objects that contain them.
"""

import json
import pathlib
import subprocess
import sys

from bench import snapshot_edge_cases

MIN_SAVED_COUNT = 86

# One process saves, as a kernel does, and another one restores.
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
    saved_names = [name for name in names if not name.startswith("__")]
    child = snapshots.start_saving(
        names, saved_names, directory, 1, seconds=100.0, max_bytes=1 << 30
    )
    os.waitpid(child, 0)
    os._exit(0)
os.waitpid(saver, 0)
names = {"__name__": "__main__"}
failures = snapshot_readers.restore(names, directory, 1)
print(json.dumps([sorted(names), failures]), flush=True)
os._exit(0)
"""


def test_unusual_objects_are_restored_or_lost_with_a_reason(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=pathlib.Path(snapshot_edge_cases.__file__).parents[1],
        capture_output=True,
        check=True,
        timeout=300,
    )
    restored_names, failures = json.loads(process.stdout)
    manifest = json.loads((tmp_path / "1" / "manifest.json").read_text())
    loss_reasons = manifest["lost"] | failures
    kept_names = set(snapshot_edge_cases.NAMES).intersection(restored_names)
    assert set(snapshot_edge_cases.NAMES) - kept_names == set(
        snapshot_edge_cases.NAMES
    ).intersection(loss_reasons)
    assert all(loss_reasons.values()), loss_reasons
    assert not failures, "losses must be known at the save"
    assert len(kept_names) >= MIN_SAVED_COUNT, sorted(loss_reasons)
    assert {"huge_string", "holder", "self_object", "closure", "lock", "Plain"} <= kept_names
    assert {"holder"} <= manifest["partly"].keys()
