"""The container's flags, under Podman and a seccomp profile like Docker's."""

import json
import pathlib
import re

import pytest

from tests.deploy import conftest as systems

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]
README = systems.REPOSITORY / "deploy/docker/README.md"
PROFILE = pathlib.Path("/usr/share/containers/seccomp.json")
# Where root lacks CAP_SYS_RESOURCE, Podman's own could not be set.
LIMITS = '[containers]\ndefault_ulimits=["nofile=4096:8192","nproc=1024:1024"]\n'
RESTRICTED = "--user 1001:1001 --cap-drop ALL --security-opt no-new-privileges"
VARIABLES = {
    "INTERPRETER_BOT_PATHS__DATA": "/tmp/data",
    "INTERPRETER_BOT_PATHS__RUNTIME": "/tmp/run",
    "INTERPRETER_BOT_LOCAL__ENABLED": "false",
}


@pytest.fixture
def doctor(system, short_path):
    """Let the doctor look at what a container with these flags has; returns all it said."""
    systems.require_programs("podman", "crun")
    configuration = short_path / "containers.conf"
    configuration.write_text(LIMITS)
    storage_options = ["--root", short_path / "store", "--runroot", short_path / "run"]
    engine = ["podman", *storage_options, "--storage-driver", "vfs", "--runtime", "crun"]
    engine += ["--cgroup-manager", "cgroupfs"]
    common = "--rm --network none --cgroups disabled --log-driver none"
    variables = [f"--env={name}={value}" for name, value in VARIABLES.items()]

    def run(*flags: str, rights: str = RESTRICTED) -> str:
        options = [*common.split(), *rights.split(), *flags, *variables]
        command = [*engine, "run", *options, "--rootfs", f"{system}:O"]
        program = f"/{systems.HOME}/.venv/bin/interpreter-bot"
        result = systems.run_in_namespaces(
            *map(str, command), program, "doctor", CONTAINERS_CONF=str(configuration)
        )
        return result.stdout

    return run


def test_podman_needs_one_flag_more_and_the_hosts_name_is_seen_then(doctor):
    report = doctor("--security-opt", "unmask=ALL")
    assert "level: standard" in report, report
    assert re.search(r"^host name +NO", report, re.MULTILINE)


@pytest.mark.parametrize("rights", ["", RESTRICTED], ids=["root", "restricted"])
def test_a_masked_proc_leaves_the_weakest_level(doctor, rights):
    report = doctor(rights=rights)
    assert "level: container" in report, report
    assert not re.search(
        r"^(files|processes|signals|network|descriptors) +NO", report, re.MULTILINE
    )


def test_the_calls_that_the_readme_adds_to_a_profile_are_those_that_are_needed(doctor, tmp_path):
    if not PROFILE.exists():
        pytest.skip(f"{PROFILE} is not there")
    match = re.search(r'"names": (\[[^]]*\])', README.read_text())[1]
    profile = json.loads(PROFILE.read_text())
    needed_calls = set(json.loads(match))
    # Like Docker's own, which allows none of them.
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in needed_calls]
    # Also like Docker's: processes may be made, but not in new namespaces.
    new_namespaces = {"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    fork = {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [new_namespaces]}
    without = tmp_path / "without.json"
    without.write_text(json.dumps(profile | {"syscalls": [*profile["syscalls"], fork]}))
    for rights in ("", RESTRICTED):
        report = doctor(
            "--security-opt", "unmask=ALL", f"--security-opt=seccomp={without}", rights=rights
        )
        assert "level: container" in report, report
    profile["syscalls"].append({"names": sorted(needed_calls), "action": "SCMP_ACT_ALLOW"})
    with_them = tmp_path / "with.json"
    with_them.write_text(json.dumps(profile))
    report = doctor("--security-opt", "unmask=ALL", f"--security-opt=seccomp={with_them}")
    assert "level: standard" in report, report
    assert re.search(r"^host name +yes", report, re.MULTILINE)
