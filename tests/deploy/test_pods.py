"""A host and a bot as their pods run them: by the variables, volumes and commands of these."""

import os
import shlex
import subprocess

import pytest
import yaml

from interpreter_bot.hosts import certificate_authorities
from tests.deploy import conftest as systems
from tests.deploy import test_containers

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]
PLACE = systems.REPOSITORY / "deploy/kubernetes"
PYTHON = f"/{systems.HOME}/.venv/bin/python"
NAME = "hosts.interpreter-bot-hosts.svc.cluster.local"
ANSWER = """
import asyncio
from interpreter_bot import settings
from interpreter_bot.app import execution_startup
from interpreter_bot.hosts import cancellable_executions

async def main():
    shown = []
    opening = execution_startup.open_hosts(settings.Settings(), kernels_outlive_bot=True)
    async with opening as hosts, hosts.lease("pods") as lease:
        kernel = await lease.kernel()
        await cancellable_executions.run(
            hosts, kernel, "1+1", show=lambda one: shown.append(one.plain))
    print("answer:", "".join(shown).strip())

asyncio.run(main())
"""
# Waits for a port of the pod, and says what it answers.
ASK = """
import sys, time, urllib.error, urllib.request
for _ in range(900):
    try:
        with urllib.request.urlopen(sys.argv[1]) as response:
            print(sys.argv[1], response.status, response.read().decode())
        break
    except urllib.error.HTTPError as error:
        print(sys.argv[1], error.code)
        break
    except OSError:
        time.sleep(0.1)
else:
    print(sys.argv[1], "does not answer")
"""


@pytest.fixture
def pods(system, short_path, tmp_path):
    """A script that runs both, in the words of a shell."""
    systems.require_programs("podman", "crun", "kubectl")
    result = subprocess.run(["kubectl", "kustomize", PLACE], stdout=subprocess.PIPE, check=True)
    manifests = {
        f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(result.stdout)
    }
    profile = short_path / "seccomp.json"
    profile.write_text((PLACE / "seccomp.json").read_text())
    authority = certificate_authorities.CertificateAuthority(tmp_path / "ca")
    storage_options = ["--root", short_path / "store", "--runroot", short_path / "run"]
    engine = ["podman", *storage_options, "--storage-driver", "vfs", "--runtime", "crun"]
    engine += ["--cgroup-manager", "cgroupfs"]

    def start_pod(name, manifest, certificate, network):
        """Return the commands that start a pod's containers, those that come first before."""
        spec = manifests[manifest]["spec"]["template"]["spec"]
        for volume in {one["name"] for one in spec["containers"][0]["volumeMounts"]}:
            _as_volume(short_path / name / volume)
        _as_secret(certificate, short_path / name / "tls")
        _as_volume(short_path / name / "token")
        (short_path / name / "token/web-token").write_text("t" * 32)
        steps = []
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            variables = {one["name"]: one["value"] for one in container.get("env", ())}
            if "envFrom" in container:
                variables |= manifests["ConfigMap/bot"]["data"]
            command = [*engine, "run", "--init", *network]
            is_last = container is spec["containers"][0]
            command += ["--detach", "--name", name] if is_last else ["--rm"]
            command += ["--cgroups", "disabled", "--user", "1001:1001", "--cap-drop", "ALL"]
            command += ["--log-driver", "k8s-file", f"--log-opt=path={short_path / name}.log"]
            command += ["--security-opt", "no-new-privileges", f"--security-opt=seccomp={profile}"]
            if container["securityContext"].get("procMount") == "Unmasked":
                command += ["--security-opt", "unmask=ALL"]
            for mount in container["volumeMounts"]:
                command += [f"--volume={short_path / name / mount['name']}:{mount['mountPath']}"]
            command += [f"--env={key}={value}" for key, value in variables.items()]
            program = container.get("command", [f"/{systems.HOME}/.venv/bin/interpreter-bot"])
            steps.append(
                [*command, "--rootfs", f"{system}:O", *program, *container.get("args", ())]
            )
        return steps

    stop = manifests["StatefulSet/host"]["spec"]["template"]["spec"]["containers"][0]["lifecycle"]
    alone = ["--network", "none"]
    host = authority.issue([NAME], is_bot=False, days=1)
    bot = authority.issue(["bot"], is_bot=True, days=1)
    within = [*engine, "exec"]
    steps = [
        *start_pod("host", "StatefulSet/host", host, alone),
        [*within, "host", PYTHON, "-c", ASK, "http://127.0.0.1:9464/readyz"],
        [*within, "host", f"/{systems.HOME}/.venv/bin/interpreter-bot", "doctor"],
        *start_pod("bot", "Deployment/bot", bot, ["--network", "container:host"]),
        [*within, "bot", PYTHON, "-c", ASK, "http://127.0.0.1:8765/"],
        [*within, "bot", PYTHON, "-c", ANSWER],
        ["cat", short_path / "bot.log"],
        [*within, "host", PYTHON, "-c", ASK, "http://127.0.0.1:9464/metrics"],
    ]
    words = [shlex.join(map(str, step)) for step in steps]
    script = [f"{step} || echo failed: {number}" for number, step in enumerate(words)]
    # The end of the host, for which it waits, may be its own.
    script.append(shlex.join(map(str, [*within, "host", *stop["preStop"]["exec"]["command"]])))
    script.append(f"echo ended: $({shlex.join(map(str, [*engine, 'wait', 'host']))})")
    return "\n".join(script)


def _as_volume(place):
    """Make a directory as a volume with `fsGroup` is: root's, for a group to write."""
    place.mkdir(parents=True, exist_ok=True)
    os.chown(place, 0, 1001)
    place.chmod(0o2775)


def _as_secret(certificate, place):
    for file in certificate.iterdir():
        copy = place / file.name
        copy.write_bytes(file.read_bytes())
        os.chown(copy, 0, 1001)
        copy.chmod(0o440)


def test_a_bot_has_code_run_by_a_host_over_tls_and_the_host_drains(pods, short_path):
    configuration = short_path / "containers.conf"
    # In place of the cluster's DNS.
    names = short_path / "hosts"
    names.write_text(f"127.0.0.1 localhost {NAME}\n")
    configuration.write_text(f'{test_containers.LIMITS}base_hosts_file="{names}"\n')
    result = systems.run_in_namespaces("sh", "-c", pods, CONTAINERS_CONF=str(configuration))
    output = result.stdout
    assert "failed:" not in output, output
    assert "level: standard" in output
    assert "readyz 200 ready" in output
    # The page wants its token.
    assert "8765/ 401" in output
    assert "answer: 2" in output
    assert "ended: 0" in output
