"""Start of the fork server: `python -I .../guest/__main__.py FD`, FD being the control socket."""

import importlib
import pathlib
import sys

if __name__ == "__main__":
    # Isolated mode leaves our own directory out of sys.path; it is put there for these imports
    # only, so that user code can import none of it.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    forkservers = importlib.import_module("guest.forkservers")
    del sys.path[0]
    forkservers.main(int(sys.argv[1]))
