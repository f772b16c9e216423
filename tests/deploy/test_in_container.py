"""The stand-in for a container refuses what Docker and Kubernetes refuse, and allows the rest."""

import errno
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests import in_container, unprivileged

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(bool(os.geteuid()), reason="root makes containers"),
]
# Arguments that no call can use, so that one that is not refused does nothing.
_CALLS = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def answer(number, *arguments):
    long = [ctypes.c_long(argument) for argument in (arguments or (-1,) * 6)]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *long) < 0 else 0
print(json.dumps({name: answer(*call) for name, call in json.loads(sys.argv[1]).items()}))
"""
_COLUMN = 0 if os.uname().machine == "x86_64" else 1


def run(*command, is_plain=False):
    result = subprocess.run(
        [sys.executable, "-m", "tests.in_container", *["--plain"] * is_plain, *command],
        cwd=unprivileged.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not result.stderr, result.stderr
    return result


def python(code, *arguments, is_plain=False):
    result = run(sys.executable, "-c", code, *arguments, is_plain=is_plain)
    return result.stdout.strip()


def answers(calls, *, is_plain=False):
    return json.loads(python(_CALLS, json.dumps(calls), is_plain=is_plain))


@pytest.mark.parametrize("is_plain", [False, True])
def test_every_call_of_the_table_is_refused(is_plain):
    calls = {
        name: [numbers[_COLUMN]]
        for name, numbers in in_container.REFUSED_CALLS.items()
        if numbers[_COLUMN] is not None
    }
    errors = answers(calls, is_plain=is_plain)
    assert errors == dict.fromkeys(calls, errno.EPERM)


def test_namespaces_and_families_are_refused_and_new_calls_are_absent():
    clone, socket, personality = ((56, 220), (41, 198), (135, 92))
    errors = answers(
        {
            "user namespace": [clone[_COLUMN], 0x10000000 | 17, 0, 0, 0, 0],
            "mount namespace": [clone[_COLUMN], 0x00020000 | 17, 0, 0, 0, 0],
            "AF_ALG": [socket[_COLUMN], 38, 5, 0],
            "AF_VSOCK": [socket[_COLUMN], 40, 1, 0],
            "no address randomization": [personality[_COLUMN], 0x0040000],
            "clone3": [435],
            "open_tree_attr": [467],
            "AF_INET": [socket[_COLUMN], 2, 1, 0],
            "same personality": [personality[_COLUMN], 0xFFFFFFFF],
            "landlock_create_ruleset": [444, 0, 0, 1],
        }
    )
    refused = (
        "user namespace",
        "mount namespace",
        "AF_ALG",
        "AF_VSOCK",
        "no address randomization",
    )
    assert errors == {
        **dict.fromkeys(refused, errno.EPERM),
        "clone3": errno.ENOSYS,
        "open_tree_attr": errno.ENOSYS,
        "AF_INET": 0,
        "same personality": 0,
        "landlock_create_ruleset": 0,
    }


_STATUS = "import os; print(os.getpid(), os.geteuid(), open('/proc/self/status').read())"


@pytest.mark.parametrize(
    ("is_plain", "user", "capabilities", "gains_none"),
    [(False, "0", "00000000a80425fb", "0"), (True, str(unprivileged.USER), "0" * 16, "1")],
)
def test_rights(is_plain, user, capabilities, gains_none):
    first_line, *lines = python(_STATUS, is_plain=is_plain).splitlines()
    assert first_line.split()[:2] == ["1", user]
    status = dict(line.split(":\t", 1) for line in lines)
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {capabilities}
    assert (status["CapInh"], status["CapAmb"]) == ("0" * 16, "0" * 16)
    assert status["NoNewPrivs"] == gains_none


def test_root_may_give_files_and_itself_to_other_users():
    code = (
        "import os; file = os.open('/tmp/file', os.O_CREAT); os.chown(file, 20001, 20001)\n"
        "os.setgroups([]); os.setgid(20001); os.setuid(20001)\n"
        "print(os.fstat(file).st_uid, os.geteuid())\n"
        "print([line for line in open('/proc/self/status') if line.startswith('CapEff')])"
    )
    assert python(code) == "20001 20001\n['CapEff:\\t0000000000000000\\n']"


@pytest.mark.parametrize("is_plain", [False, True])
def test_kernel_files_cannot_be_written(is_plain):
    code = (
        "import os\n"
        "for path in ('/sys/fs/cgroup', '/proc/sys', '/sys/kernel'):\n"
        "    print(bool(os.statvfs(path).f_flag & os.ST_RDONLY))\n"
        "print(open('/proc/keys').read() == '')\n"
        "print(os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize >> 20)"
    )
    assert python(code, is_plain=is_plain).split() == ["True"] * 4 + ["64"]


def test_what_is_written_is_gone_and_the_machine_never_had_it(tmp_path):
    code = (
        "import os, sys\n"
        "for path in (sys.argv[1] + '/file', '/tmp/file', '/file'): open(path, 'w').close()\n"
        "print(os.readlink('/mnt/data'), os.readlink('/skills'))"
    )
    # The temporary directories of this machine are not the container's.
    place = pathlib.Path("/var/lib")
    assert python(code, place) == "/proc/self/fd/900 /proc/self/fd/902"
    assert not any(
        p.exists() for p in (place / "file", pathlib.Path("/tmp/file"), pathlib.Path("/file"))
    )


def test_programs_here_are_read_by_every_user():
    assert python("import interpreter_bot; print('read')", is_plain=True) == "read"


def test_exit_status_is_the_commands():
    assert run("sh", "-c", "exit 3").returncode == 3


def test_a_signal_reaches_the_command():
    code = "import signal; signal.signal(15, lambda *_: exit(7))\n"
    code += "print('ready', flush=True); signal.pause()"
    command = [sys.executable, "-m", "tests.in_container", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=unprivileged.ROOT, stdout=subprocess.PIPE) as container:
        assert container.stdout.readline() == b"ready\n"
        container.terminate()
        assert container.wait(20) == 7
