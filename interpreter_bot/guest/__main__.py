"""Entry point of the fork server: `python -I /proc/self/fd/PLACE/guest/__main__.py CONTROL PLACE`.

CONTROL is the descriptor of the socket to the bot, PLACE that of the directory above this package.
With a descriptor instead of a path, nothing in a kernel's memory or command line tells where the
bot is installed.
"""

import importlib
import os
import sys

if __name__ == "__main__":
    # Isolated mode leaves this directory out of sys.path; it is added for these imports only, so
    # that user code cannot import any of it.
    sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))
    forkservers = importlib.import_module("guest.forkservers")
    del sys.path[0]
    forkservers.main(*map(int, sys.argv[1:]))
