"""The order in which output of programs is shown."""

import json
import subprocess
import sys

# While the first error of a program is read, the program prints a line to each descriptor.
SCRIPT = """
import json, os
from interpreter_bot.guest import standard_streams

result, shown, unprinted = os.dup(1), [], [(1, b"progress\\n"), (2, b"second\\n")]

def print_more():
    while unprinted:
        os.write(*unprinted.pop(0))

printer = standard_streams.Printer(
    lambda content, _: shown.append((content["name"], content["text"])), print_more, 1000
)
printer.begin({})
os.write(2, b"first\\n")
printer.read()
printer.end()
os.write(result, json.dumps(shown).encode())
"""


def test_an_error_is_shown_after_earlier_output():
    # In a process of its own, because a printer replaces descriptors 1 and 2.
    process = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True)
    assert json.loads(process.stdout) == [
        ["stderr", "first\n"],
        ["stdout", "progress\n"],
        ["stderr", "second\n"],
    ]
