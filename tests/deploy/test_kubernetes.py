"""The manifests for Kubernetes: rendered, held to its schemas, and to what bot and host are."""

import json
import pathlib
import re
import socket
import subprocess

import aiohttp
import pytest
import yaml

from interpreter_bot import settings
from interpreter_bot.kernel_host import host_metrics
from tests.deploy import conftest as systems

PLACE = systems.REPOSITORY / "deploy/kubernetes"
# The first in which all fields of hosts are generally available.
RELEASE = "1.36"


def render(place):
    systems.require_programs("kubectl")
    result = subprocess.run(
        ["kubectl", "kustomize", place], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return {
        f"{manifest['kind']}/{manifest['metadata']['name']}": manifest
        for manifest in yaml.safe_load_all(result.stdout)
    }


@pytest.fixture(scope="module")
def manifests():
    return render(PLACE)


@pytest.fixture(scope="module")
def on_ray():
    systems.require_programs("kubectl")
    command = ["kubectl", "version", "--client", "-o", "json"]
    version = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    # Debian's own is of 1.20, and knows neither components of today nor replacements.
    if "kustomizeVersion" not in version:
        pytest.skip("kubectl is older than 1.24")
    return render(PLACE.parent / "kuberay")


@pytest.fixture(scope="module")
def plain():
    return render(PLACE / "plain")


class Idle:
    """A host that does nothing."""

    is_draining = False

    async def counts(self):
        return {}


def pods(manifests):
    return {
        name: manifest["spec"]["template"]["spec"]
        for name, manifest in manifests.items()
        if manifest["kind"] in ("StatefulSet", "Deployment", "DaemonSet")
    }


def variables(container, manifests):
    values = {variable["name"]: variable["value"] for variable in container.get("env", ())}
    for source in container.get("envFrom", ()):
        if "configMapRef" in source:
            values |= manifests[f"ConfigMap/{source['configMapRef']['name']}"]["data"]
    return values


def load_settings(pod, manifests, monkeypatch):
    for name, value in variables(pod["containers"][0], manifests).items():
        monkeypatch.setenv(name, value)
    return settings.Settings()


def test_each_is_what_the_schemas_say(manifests):
    schemas = pytest.importorskip("kubernetes_validate")
    for manifest in manifests.values():
        schemas.validate(manifest, RELEASE, strict=True)
    broken = json.loads(json.dumps(manifests["StatefulSet/host"]))
    broken["spec"]["template"]["spec"]["hostUser"] = False
    with pytest.raises(schemas.ValidationError):
        schemas.validate(broken, RELEASE, strict=True)


RESTRICTED = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


def list_violations(pod):
    """Name what the pod security standard "restricted" (1.36) forbids in a pod."""
    common = pod.get("securityContext", {})
    violated = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    kinds = {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}
    violated += sorted(kinds - RESTRICTED) + ["sysctls"] * bool(common.get("sysctls"))
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        rights = common | container.get("securityContext", {})
        capabilities = rights.get("capabilities", {})
        rules = {
            "runAsNonRoot": rights.get("runAsNonRoot") is True and rights.get("runAsUser") != 0,
            "privileged": not rights.get("privileged"),
            "allowPrivilegeEscalation": rights.get("allowPrivilegeEscalation") is False,
            "capabilities.drop": capabilities.get("drop") == ["ALL"],
            "capabilities.add": set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"},
            "procMount": rights.get("procMount", "Default") == "Default",
            "seccompProfile": rights.get("seccompProfile", {}).get("type")
            in ("RuntimeDefault", "Localhost"),
            "appArmorProfile": rights.get("appArmorProfile", {}).get("type") != "Unconfined",
            "seLinuxOptions": "seLinuxOptions" not in rights,
            "hostPort": not any("hostPort" in port for port in container.get("ports", ())),
        }
        violated += [name for name, is_allowed in rules.items() if not is_allowed]
    return violated


@pytest.mark.parametrize("name", ["manifests", "plain"])
def test_pods_may_run_in_their_namespace(name, request):
    manifests = request.getfixturevalue(name)
    standards = {
        manifest["metadata"]["name"]: manifest["metadata"]["labels"][
            "pod-security.kubernetes.io/enforce"
        ]
        for key, manifest in manifests.items()
        if key.startswith("Namespace/")
    }
    restricted = [
        key
        for key, pod in pods(manifests).items()
        if standards[manifests[key]["metadata"]["namespace"]] == "restricted"
    ]
    assert restricted == ["Deployment/bot"]
    assert list_violations(pods(manifests)["Deployment/bot"]) == []


def test_what_walls_of_hosts_need_is_not_allowed_everywhere(manifests):
    assert set(list_violations(pods(manifests)["StatefulSet/host"])) == {
        "procMount",
        "appArmorProfile",
    }


def test_the_plain_pod_is_bot_and_host_with_the_runtimes_own_profile(plain, monkeypatch):
    schemas = pytest.importorskip("kubernetes_validate")
    for manifest in plain.values():
        schemas.validate(manifest, RELEASE, strict=True)
    pod = pods(plain)["Deployment/bot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostUsers" not in pod
    # What a new pod begins with is what the old one had, which is gone by then.
    assert plain["Deployment/bot"]["spec"]["strategy"] == {"type": "Recreate"}
    bot_settings = load_settings(pod, plain, monkeypatch)
    assert bot_settings.host.fleet == ()
    (container,) = pod["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [bot_settings.web.port]
    # The group's directory of the volume is the cluster's, so the bot makes one of its own in it.
    mount_paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert bot_settings.paths.data.parent == pathlib.Path(mount_paths["data"])
    assert plain["Service/page"]["spec"]["selector"] == {"app": "bot"}


def test_hosts_have_what_walls_need_and_nothing_more(manifests):
    pod = pods(manifests)["StatefulSet/host"]
    (container,) = pod["containers"]
    assert pod["hostUsers"] is False
    assert pod["securityContext"]["seccompProfile"]["localhostProfile"] == "interpreter-bot.json"
    assert container["securityContext"] == {
        "procMount": "Unmasked",
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    installed = next(manifest for name, manifest in manifests.items() if "seccomp-profile" in name)
    profile = json.loads(installed["data"]["interpreter-bot.json"])
    refused = {name for rule in profile["syscalls"] for name in rule["names"] if "args" not in rule}
    needed_calls = re.search(
        r'"names": (\[[^]]*\])', (PLACE.parent / "docker/README.md").read_text()
    )[1]
    assert not refused & set(json.loads(needed_calls))


def test_no_pod_is_given_the_cluster_or_more_rights_than_it_starts_with(manifests):
    for name, pod in pods(manifests).items():
        assert pod["automountServiceAccountToken"] is False, name
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name


def test_bots_and_hosts_can_read_their_settings_and_find_each_other(manifests, monkeypatch):
    pods_by_name = pods(manifests)
    host = load_settings(pods_by_name["StatefulSet/host"], manifests, monkeypatch).host
    (container,) = pods_by_name["StatefulSet/host"]["containers"]
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert (host.listen, host.metrics) == (
        f"0.0.0.0:{ports['tls']}",
        f"0.0.0.0:{ports['metrics']}",
    )
    bot = load_settings(pods_by_name["Deployment/bot"], manifests, monkeypatch)
    service = manifests["Service/hosts"]
    hosts_name = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    assert bot.host.fleet == (f"dns:{hosts_name}.svc.cluster.local:{ports['tls']}",)
    # A pod needs longer than that to come back with its volume: what it had would be given up.
    assert bot.host.lost_seconds >= 600
    page = pods_by_name["Deployment/bot"]["containers"][0]["ports"][0]["containerPort"]
    assert bot.web.port == page


def test_hosts_reach_nothing_and_are_reached_by_bots_and_watchers(manifests):
    policy = manifests["NetworkPolicy/hosts"]["spec"]
    assert policy["podSelector"] == {}
    assert (policy["policyTypes"], policy.get("egress", [])) == (["Ingress", "Egress"], [])
    reached = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert reached == {7443, 9464}
    assert all(rule["from"] for rule in policy["ingress"])


async def test_the_autoscaler_asks_for_a_figure_that_hosts_tell(manifests):
    (metric,) = manifests["HorizontalPodAutoscaler/hosts"]["spec"]["metrics"]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    async with (
        host_metrics.serving(Idle(), address),
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/metrics") as response,
    ):
        assert f"\n{metric['pods']['metric']['name']} " in await response.text()


def test_nodes_of_ray_have_the_pods_of_hosts(manifests, on_ray, monkeypatch):
    schemas = pytest.importorskip("kubernetes_validate")
    assert not {"StatefulSet/host", "HorizontalPodAutoscaler/hosts"} & on_ray.keys()
    assert manifests.keys() - on_ray.keys() == {"StatefulSet/host", "HorizontalPodAutoscaler/hosts"}
    cluster = on_ray["RayCluster/hosts"]["spec"]
    assert cluster["authOptions"] == {"mode": "token"}
    (workers,) = cluster["workerGroupSpecs"]
    for template in (cluster["headGroupSpec"]["template"], workers["template"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, **template}
        schemas.validate(pod, RELEASE, strict=True)
    for name, manifest in on_ray.items():
        if name != "RayCluster/hosts":
            schemas.validate(manifest, RELEASE, strict=True)
    # The operator starts Ray in the first; what walls need has the host alone.
    ray_container, host = workers["template"]["spec"]["containers"]
    assert host.pop("envFrom") == [{"secretRef": {"name": "host-store"}}]
    assert [host] == pods(manifests)["StatefulSet/host"]["containers"]
    assert ray_container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert json.loads(json.loads(workers["rayStartParams"]["resources"])) == {
        "interpreter_bot_host": 1
    }
    # They meet at one socket, and a second host could not listen.
    ray_settings = load_settings({"containers": [ray_container]}, on_ray, monkeypatch)
    assert ray_settings.host.tls is None
    host_settings = load_settings({"containers": [host]}, on_ray, monkeypatch)
    assert ray_settings.paths.host_sockets == host_settings.paths.host_sockets
    assert ray_settings.host.listen == host_settings.host.listen
    assert workers["template"]["metadata"]["labels"] == on_ray["Service/hosts"]["spec"]["selector"]
