"""In which order what programs print is shown."""

import json
import subprocess
import sys

# While the first of a program's errors is taken, it prints two lines, one to each descriptor.
PRINTING = """
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


def test_errors_come_after_what_was_printed_before_them():
    # In a process of its own, whose descriptors it may take.
    printed = subprocess.run([sys.executable, "-c", PRINTING], stdout=subprocess.PIPE, check=True)
    assert json.loads(printed.stdout) == [
        ["stderr", "first\n"],
        ["stdout", "progress\n"],
        ["stderr", "second\n"],
    ]
