"""Pictures of real code at a real terminal that knows sixel, or has many colours only."""

import fcntl
import os
import pathlib
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.unit.platforms.console import sixel_reading

pytestmark = pytest.mark.kernel

COMMAND = pathlib.Path(sys.executable).with_name("interpreter-bot")
CODE = """
import PIL.Image
image = PIL.Image.new("RGB", (50, 20), "#0000ff")
image.paste("#ff0000", (0, 0, 25, 20))
display(image)
input("Then? ")
"""


@pytest.fixture
def terminal(tmp_path, short_path):
    """Run the code in a terminal; return all that it was sent."""

    def run(answer):
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 800, 480))
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONUTF8": "1",
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
        }
        process = subprocess.Popen(
            ["setsid", "-c", COMMAND, "exec", "--cell", CODE],
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
            env=environment,
        )
        os.close(theirs)
        sent = b""
        # At its end, reading from it fails.
        while process.poll() is None:
            try:
                chunk = os.read(ours, 4096)
            except OSError:
                break
            sent += chunk
            if b"\x1b[c" in chunk:
                os.write(ours, answer)
            if b"Then? " in chunk:
                os.write(ours, b"typed\n")
        assert process.wait(60) == 0
        os.close(ours)
        return sent.decode().replace("\r\n", "\n")

    return run


def test_a_picture_is_shown_by_sixel_before_what_came_later(terminal):
    sent = terminal(b"\x1b[?62;4;22c")
    assert sent.index("\x1bP") < sent.index("Then? ")
    width, height, pixels = sixel_reading.pixels(re.search(r"\x1bP[^\x1b]*\x1b\\\n", sent)[0])
    assert (width, height) == (50, 20)
    assert pixels == ([(255, 0, 0)] * 25 + [(0, 0, 255)] * 25) * 20
    assert "--keep DIR" in sent


def test_a_picture_is_shown_as_blocks_where_sixel_is_unknown(terminal):
    line = (
        f"\x1b[38;2;255;0;0;48;2;255;0;0m{'▀' * 25}\x1b[38;2;0;0;255;48;2;0;0;255m{'▀' * 25}"
        "\x1b[0m\n"
    )
    assert line * 10 in terminal(b"\x1b[?62;22c")
