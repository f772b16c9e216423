"""Landlock in processes without any other wall."""

import json
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from interpreter_bot.guest import landlock, syscalls

ABI = syscalls.landlock_abi()
pytestmark = pytest.mark.skipif(ABI < 2, reason="the kernel has no Landlock, or too old a one")
# Prints the result of each attempt by its name.
RUN = r"""
import errno, fcntl, json, os, signal, socket, subprocess, sys
from interpreter_bot.guest import landlock, syscalls

told = json.loads(sys.argv[1])
os.chdir(told["place"])
if told["abi"] is not None:
    syscalls.landlock_abi = lambda: told["abi"]
syscalls.forbid_new_privileges()
readable = ["/usr", "/bin", "/lib", "/lib64", "/nowhere", sys.prefix, sys.base_prefix, "shown"]
answers = {"abi": landlock.restrict(readable, ["own"], ["/dev/null"], listable_directories=["."])}

def put(path, flags=os.O_CREAT):
    os.write(os.open(path, os.O_WRONLY | flags), b"x")

def connect(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(name)

def reach_child():
    if (pid := os.fork()) == 0:
        signal.pause()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with socket.socket(socket.AF_UNIX) as here:
        here.bind("\0own " + told["abstract"])
        here.listen()
        connect("\0own " + told["abstract"])

ATTEMPTS = {
    "list all": lambda: os.listdir("beside"),
    "read what is shown": lambda: open("shown/file").read(),
    "execute": lambda: subprocess.run(["/bin/true"], check=True),
    "write and remove": lambda: (put("own/file"), os.unlink("own/file")),
    "truncate": lambda: (put("own/f"), os.truncate("own/f", 0), open("own/f", "w").close()),
    "move and link": lambda: (os.rename("own/a/x", "own/b/x"), os.link("own/b/x", "own/a/x")),
    "make": lambda: (os.mkdir("own/d"), os.symlink("x", "own/s"), os.mkfifo("own/p")),
    "use a device": lambda: open("/dev/null", "w+").write("x"),
    "reach its own": reach_child,
    "read what is beside": lambda: open("beside/file").read(),
    "write what is shown": lambda: put("shown/file"),
    "create beside": lambda: put("beside/new"),
    "remove what is shown": lambda: os.unlink("shown/file"),
    "move to what is shown": lambda: os.rename("own/b/x", "shown/x"),
    "execute what is beside": lambda: subprocess.run([told["place"] + "/beside/true"]),
    "truncate what is beside": lambda: os.truncate("beside/file", 0),
    "ask a device": lambda: fcntl.ioctl(os.open("/dev/null", os.O_RDWR), 0x5401),
    "reach others by name": lambda: connect("\0" + told["abstract"]),
    "signal others": lambda: os.kill(os.getppid(), 0),
}
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except OSError as error:
        answers[name] = errno.errorcode[error.errno]
    else:
        answers[name] = "allowed"
print(json.dumps(answers))
"""
ALLOWED = [
    *("list all", "read what is shown", "execute", "write and remove", "truncate"),
    *("move and link", "make", "use a device", "reach its own"),
]
# By attempt: the first ABI that refuses it, and the error.
REFUSALS = {
    "read what is beside": (2, "EACCES"),
    "write what is shown": (2, "EACCES"),
    "create beside": (2, "EACCES"),
    "remove what is shown": (2, "EACCES"),
    "move to what is shown": (2, "EACCES"),
    "execute what is beside": (2, "EACCES"),
    "truncate what is beside": (3, "EACCES"),
    "ask a device": (5, "EACCES"),
    "reach others by name": (6, "EPERM"),
    "signal others": (6, "EPERM"),
}


def run_attempts(directory, abi=None):
    for name in ("shown", "beside", "own/a", "own/b"):
        (directory / name).mkdir(parents=True)
    for file in ("shown/file", "beside/file", "own/a/x"):
        (directory / file).write_text("x")
    shutil.copy("/bin/true", directory / "beside/true")
    with socket.socket(socket.AF_UNIX) as listener:
        abstract = f"landlock {directory}"
        listener.bind("\0" + abstract)
        listener.listen()
        parameters = json.dumps({"place": str(directory), "abi": abi, "abstract": abstract})
        root = pathlib.Path(landlock.__file__).parents[2]
        process = subprocess.run(
            [sys.executable, "-c", RUN, parameters], cwd=root, capture_output=True, text=True
        )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return run_attempts(tmp_path_factory.mktemp("lock"))


@pytest.mark.parametrize("what", ALLOWED)
def test_what_analysis_needs_is_allowed(answers, what):
    assert answers[what] == "allowed"


@pytest.mark.parametrize("what", REFUSALS)
def test_everything_else_is_refused_by_landlock_alone(answers, what):
    since, error = REFUSALS[what]
    if since <= ABI:
        assert answers[what] == error


@pytest.mark.parametrize("abi", [abi for abi in (2, 3, 5, 6) if abi < ABI])
def test_an_older_kernel_refuses_what_it_can(tmp_path, abi):
    answers = run_attempts(tmp_path, abi)

    assert answers.pop("abi") == abi
    refused = {name for name, answer in answers.items() if answer in ("EACCES", "EPERM")}
    assert refused == {name for name, (since, _) in REFUSALS.items() if since <= abi}


@pytest.mark.parametrize("abi", [0, 1])
def test_a_kernel_without_it_or_with_the_first_is_left_alone(tmp_path, abi):
    answers = run_attempts(tmp_path, abi)

    assert answers["abi"] == 0
    assert answers["move and link"] == answers["read what is beside"] == "allowed"
