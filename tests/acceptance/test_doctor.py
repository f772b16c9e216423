"""The doctor on this very machine, as whoever runs the tests, and on worse ones."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from interpreter_bot import settings
from interpreter_bot.doctor import diagnosis
from interpreter_bot.kernels.provisioning import cgroups

FORBID = """
import errno, os, struct, sys
from interpreter_bot.guest import seccomp, syscalls
number = seccomp._DENIED_CALLS[sys.argv[1]][os.uname().machine == "aarch64"]
program = struct.pack("HBBI", 0x20, 0, 0, 0) + struct.pack("HBBI", 0x15, 0, 1, number)
program += seccomp._fail(errno.EPERM) + seccomp._ALLOW
syscalls.forbid_new_privileges()
syscalls.install_filter(program)
os.execv(sys.argv[2], sys.argv[2:])
"""
IS_ROOT = os.geteuid() == 0
EXAMINE = """
import dataclasses, json, pathlib, sys
from interpreter_bot import settings
from interpreter_bot.doctor import diagnosis
place = pathlib.Path(sys.argv[1])
paths = settings.Paths(data=place / "d", runtime=place / "r")
findings = diagnosis.diagnose(settings.Settings(paths=paths))
found = [dataclasses.asdict(finding) for finding in findings]
print(json.dumps([diagnosis.level(findings), found]))
"""


def servers():
    """Fork servers among the children of this process."""
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = f"\nPPid:\t{os.getpid()}\n" in (process / "status").read_text()
            if is_ours and b"guest/__main__.py" in (process / "cmdline").read_bytes():
                found.add(process)
    return found


@pytest.fixture(scope="module")
def servers_before():
    return servers()


@pytest.fixture(scope="module")
def examined(tmp_path_factory, servers_before):
    place = tmp_path_factory.mktemp("ib")
    limits = settings.Limits(workspace_bytes=settings.MIB, disk_reserve_bytes=0)
    paths = settings.Paths(data=place, runtime=place / "r")
    kernels = settings.Kernels(preload=("json", "no_such_module"))
    bot = settings.Settings(limits=limits, paths=paths, kernels=kernels)
    started = time.monotonic()
    findings = diagnosis.diagnose(bot)
    return findings, time.monotonic() - started


def examine_in(place, *command):
    """Examine a machine that a command makes of this one."""
    done = subprocess.run(
        [*command, sys.executable, "-c", EXAMINE, place], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    level, findings = json.loads(done.stdout)
    return level, {finding["name"]: finding for finding in findings}


def can(*command):
    return subprocess.run([*command, "true"], capture_output=True).returncode == 0


def has_groups():
    groups = cgroups.Cgroups.probe("auto")
    groups.close()
    return groups.version > 0


@pytest.mark.gate
@pytest.mark.kernel
@pytest.mark.namespaces
def test_every_wall_stands_here(examined):
    findings, _ = examined
    allowed = {"python"} | (set() if IS_ROOT else {"user id per session"})
    allowed |= set() if has_groups() else {"control group"}
    missing = {finding.name: finding.detail for finding in findings if not finding.is_active}
    assert missing.keys() <= allowed, missing


@pytest.mark.gate
@pytest.mark.kernel
@pytest.mark.namespaces
def test_level_is_what_this_machine_can_do(examined):
    findings, _ = examined
    assert diagnosis.level(findings) == ("full" if has_groups() else "standard")


@pytest.mark.kernel
def test_says_who_the_sessions_are_and_what_bounds_them(examined):
    found = {finding.name: finding for finding in examined[0]}
    assert found["user id per session"].is_active is IS_ROOT
    assert found["control group"].is_active is has_groups()
    assert "no_such_module" in found["python"].detail
    assert "json" not in found["python"].detail


@pytest.mark.kernel
def test_is_quick_enough_for_every_start(examined):
    assert examined[1] < 10


@pytest.mark.gate
@pytest.mark.kernel
@pytest.mark.usefixtures("examined")
def test_nothing_is_left(servers_before):
    assert not [name for name in os.environ if name.startswith("DOCTOR_")]
    assert servers() <= servers_before


@pytest.mark.kernel
@pytest.mark.namespaces
def test_groups_that_are_switched_off_are_not_used(tmp_path):
    paths = settings.Paths(data=tmp_path / "d", runtime=tmp_path / "r")
    bot = settings.Settings(sandbox=settings.Sandbox().without_cgroups(), paths=paths)
    findings = diagnosis.diagnose(bot)
    found = {finding.name: finding for finding in findings}
    assert "switched off" in found["control group"].detail
    assert not found["control group"].is_active
    assert diagnosis.level(findings) == "standard", [f for f in findings if not f.is_active]


@pytest.mark.kernel
def test_machine_that_forbids_user_namespaces_is_told_how_to_allow_them(tmp_path):
    if not can("unshare", "-Ur"):
        pytest.skip("there are no user namespaces to forbid")
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    level, found = examine_in(tmp_path, "unshare", "-Ur", "sh", "-c", forbid, "sh")
    # The root of such a namespace has no other id to give to code.
    assert level == "none", found
    assert "unshare" in found["sandbox"]["detail"]
    assert "code would run as root" in found["sandbox"]["detail"]
    assert "user.max_user_namespaces" in found["sandbox"]["fix"]
    assert "Traceback" not in json.dumps(found)


@pytest.mark.kernel
def test_root_of_a_namespace_without_ids_is_told(tmp_path):
    if not can("unshare", "-Ur"):
        pytest.skip("there are no user namespaces")
    level, found = examine_in(tmp_path, "unshare", "-Ur")
    assert level == "none"
    assert "Root has no user ids" in found["sandbox"]["fix"]


@pytest.mark.kernel
@pytest.mark.namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can hide parts of /proc")
def test_masked_proc_is_told_apart(tmp_path):
    hide = 'mount --bind /dev/null /proc/version && exec "$@"'
    level, found = examine_in(tmp_path, "unshare", "-m", "sh", "-c", hide, "sh")
    # A root whose Python lies in a home that is closed to others has no weaker level.
    finding = found["namespaces" if level == "container" else "sandbox"]
    assert "mount /proc" in finding["detail"]
    fix = finding["fix"]
    assert "ProtectProc" in fix or "systempaths" in fix


@pytest.mark.gate
@pytest.mark.kernel
@pytest.mark.namespaces
@pytest.mark.skipif(not IS_ROOT, reason="only root can make a container")
@pytest.mark.parametrize("options", [[], ["--plain"]], ids=["root", "plain"])
def test_an_ordinary_container_has_all_walls_of_its_level(options):
    command = [sys.executable, "-m", "tests.in_container", *options]
    command += [sys.executable, "-m", "interpreter_bot", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["level"] == "container"
    lacking = {row["name"] for row in report["findings"] if row["active"] is False}
    allowed = {"namespaces", "control group", "model"}
    assert lacking <= allowed | ({"user id per session"} if options else set())


@pytest.mark.kernel
@pytest.mark.namespaces
def test_machine_that_forbids_only_its_name_has_every_wall_and_is_told(tmp_path):
    """As Podman's default profile does, and `ProtectHostname=` of systemd."""
    level, found = examine_in(tmp_path, sys.executable, "-c", FORBID, "sethostname")
    assert level == ("full" if has_groups() else "standard"), found
    assert found["namespaces"]["is_active"], "that of names is there, with the host's in it"
    assert not found["host name"]["is_active"]
    assert os.uname().nodename in found["host name"]["detail"]
    assert "ProtectHostname" in found["host name"]["fix"]
