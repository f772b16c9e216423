"""Pictures of real code at a real terminal that knows the protocol of kitty, or none."""

import base64
import fcntl
import io
import os
import pathlib
import re
import struct
import subprocess
import sys
import termios

import PIL.Image
import pytest

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

    def run(term):
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 800, 480))
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TERM": term,
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
            if b"Then? " in chunk:
                os.write(ours, b"typed\n")
        assert process.wait(60) == 0
        os.close(ours)
        return sent.decode().replace("\r\n", "\n")

    return run


@pytest.mark.gate
def test_a_picture_is_shown_before_what_came_later(terminal):
    sent = terminal("xterm-kitty")
    assert sent.index("\x1b_G") < sent.index("Then? ")
    content = "".join(re.findall(r"\x1b_G[^;]*;([^\x1b]*)\x1b\\", sent))
    image = PIL.Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB")
    assert image.size == (50, 20)
    assert (image.getpixel((0, 0)), image.getpixel((49, 19))) == ((255, 0, 0), (0, 0, 255))
    assert "--keep DIR" in sent


def test_any_other_terminal_is_sent_the_name(terminal):
    sent = terminal("xterm-256color")
    assert "\x1b_G" not in sent
    assert "image" in sent
    assert "--keep DIR" in sent
