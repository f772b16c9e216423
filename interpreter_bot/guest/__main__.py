"""Start of the fork server: `python -I /proc/self/fd/PLACE/guest/__main__.py CONTROL PLACE`.

CONTROL is the descriptor of the socket to the bot, PLACE that of the directory above ours: by
that name, nothing that a kernel finds in its memory or command line tells where the bot lies.
"""

import importlib
import os
import sys

if __name__ == "__main__":
    # Isolated mode leaves our own directory out of sys.path; it is put there for these imports
    # only, so that user code can import none of it.
    sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))
    forkservers = importlib.import_module("guest.forkservers")
    del sys.path[0]
    forkservers.main(*map(int, sys.argv[1:]))
