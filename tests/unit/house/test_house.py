"""The rules of the house, as far as a machine can see them."""

import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = ROOT / "interpreter_bot"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Runs in an interpreter of its own. A read counts as ours when nothing but the standard library
# lies between it and us: what a third-party library does while it is imported is its affair.
IMPORT_EVERYTHING = """
import gc, importlib, logging, os, sys

gc.disable()
faults = []

class Watched(type(os.environ)):
    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame:
            name = frame.f_globals.get("__name__", "")
            top = name.partition(".")[0]
            if top == "interpreter_bot":
                faults.append(f"{name} reads {key} at import")
            if top == "importlib" or top not in sys.stdlib_module_names:
                break
            frame = frame.f_back
        return super().__getitem__(key)

os.environ.__class__ = Watched
os.environ["HOUSE_TEST"] = "1"

from interpreter_bot import settings

def refuse(*_, **__):
    raise AssertionError("Settings() at import")

settings.Settings.__init__ = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
    if logging.getLogger().handlers:
        faults.append(f"{name} configures logging at import")
        logging.getLogger().handlers.clear()
print(*faults, sep="\\n")
"""


def _dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_importing_does_nothing():
    # Ray is for who has a cluster, and too large for everybody else.
    left_out = {"guest"} if importlib.util.find_spec("ray") else {"guest", "ray_fleet"}
    names = [_dotted(path) for path in MODULES if left_out.isdisjoint(path.parts)]
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ""
