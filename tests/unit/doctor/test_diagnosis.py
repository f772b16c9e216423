"""The doctor's findings from results of probes, and the probes themselves without walls."""

import asyncio
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.doctor import advice, diagnosis, in_kernel_walls, trial_kernels
from interpreter_bot.kernels import pools
from interpreter_bot.kernels.provisioning import forkserver_clients

BOT_NAMESPACES = trial_kernels.read_bot_namespaces()

Walls = forkserver_clients.Walls
CHECKS = diagnosis.CHECKS[Walls.NAMESPACES]

# Checks whose failure is reported, but does not mean that a wall is missing.
NOT_WALLS = {"core_dumps", "doors", "host_name", "landlock", "python"}

RUN = """
import json, pathlib, sys
facts = json.loads(sys.argv[1])
for file in sys.argv[2:]:
    exec(pathlib.Path(file).read_text())
named = [check for check in CHECKS if check.__name__ not in facts["not"]]
print(json.dumps({check.__name__: check(facts) for check in named}))
"""


def create_results(walls=Walls.NAMESPACES, **changes):
    """Return results of a machine where every wall holds, with changes."""

    def session(number):
        return trial_kernels.HostView(
            uids=frozenset({1000 + number}),
            uid=1000 + number,
            namespaces={kind: f"{kind}:[{number}]" for kind in BOT_NAMESPACES},
        )

    fields = {
        "walls": walls,
        "refusal": "" if walls is Walls.NAMESPACES else "[Errno 1] unshare: not permitted",
        "shared_id_reason": "",
        "check_results": {check: ([], "fine") for check in diagnosis.CHECKS[walls].values()},
        "host_views": (session(1), session(2)),
        "can_freeze": True,
        "groups_version": 2,
        "groups_reason": "version 2",
    }
    if walls is Walls.CONTAINER:
        fields |= {"can_freeze": False, "groups_version": 0}
    return trial_kernels.ProbeResults(**fields | changes)


def evaluate(walls=Walls.NAMESPACES, config=None, **changes):
    findings = diagnosis.evaluate(create_results(walls, **changes), config or settings.Settings())
    return findings, {finding.name for finding in findings if finding.is_active is False}


def run_checks_unconfined(*names, excluded_checks=(), **facts):
    directory = pathlib.Path(trial_kernels.__file__).parent
    files = [directory / f"in_kernel_{name}.py" for name in names]
    process = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            RUN,
            json.dumps({"not": excluded_checks, **facts}),
            *files,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    return {name: breaches for name, (breaches, _) in json.loads(process.stdout).items()}


def test_everything_standing_is_full():
    findings, missing = evaluate()
    assert missing == set()
    assert diagnosis.level(findings) == "full"


def test_no_control_group_is_standard_and_the_fix_is_named():
    findings, missing = evaluate(groups_version=0)
    assert missing == {"control group"}
    assert diagnosis.level(findings) == "standard"
    [fix] = [finding.fix for finding in findings if not finding.is_active]
    assert "`Delegate=yes`" in fix
    assert "`systemd-run --user --scope -p Delegate=yes interpreter-bot …`" in fix


@pytest.mark.parametrize("check", sorted(set(CHECKS.values()) - NOT_WALLS))
def test_any_wall_with_a_hole_is_none(check):
    findings, missing = evaluate(
        check_results=dict(create_results().check_results) | {check: (["went through"], "")}
    )
    assert [CHECKS[name] for name in missing] == [check]
    assert diagnosis.level(findings) == "none"


def test_silent_probe_is_no_wall():
    findings, _ = evaluate(check_results={})
    assert diagnosis.level(findings) == "none"
    assert "did not answer" in next(f.detail for f in findings if f.name == "network")


@pytest.mark.parametrize("check", sorted(NOT_WALLS))
def test_what_is_no_wall_is_told_and_no_hole(check):
    inside = dict(create_results().check_results) | {check: (["it is not there"], "")}
    findings, missing = evaluate(check_results=inside)
    assert [CHECKS[name] for name in missing] == [check]
    assert diagnosis.level(findings) == "full"


@pytest.mark.parametrize("kind", sorted(BOT_NAMESPACES))
def test_namespace_of_the_host_is_no_wall(kind):
    one, two = create_results().host_views
    shared = trial_kernels.HostView(
        two.uids, two.uid, dict(two.namespaces) | {kind: BOT_NAMESPACES[kind]}
    )
    findings, missing = evaluate(host_views=(one, shared))
    assert "namespaces" in missing
    assert diagnosis.level(findings) == "none"


def test_namespace_of_the_neighbour_is_no_wall():
    one, two = create_results().host_views
    shared = dict(two.namespaces) | {"pid": one.namespaces["pid"]}
    _, missing = evaluate(host_views=(one, trial_kernels.HostView(two.uids, two.uid, shared)))
    assert missing == {"namespaces"}


def test_root_of_the_host_is_no_wall():
    one, two = create_results().host_views
    root = trial_kernels.HostView(frozenset({0, 1001}), one.uid, one.namespaces)
    findings, missing = evaluate(host_views=(root, two))
    assert missing == {"user namespace"}
    assert diagnosis.level(findings) == "none"


def test_shared_user_id_is_told_and_no_hole():
    one, two = create_results().host_views
    twin = trial_kernels.HostView(one.uids, one.uid, two.namespaces)
    findings, missing = evaluate(host_views=(one, twin))
    assert missing == {"user id per session"}
    assert diagnosis.level(findings) == "full"


def test_every_wall_of_a_container_is_a_level_of_its_own():
    findings, missing = evaluate(Walls.CONTAINER)
    assert missing == {"namespaces", "control group"}
    assert diagnosis.level(findings) == "container"
    [namespaces] = [finding for finding in findings if finding.name == "namespaces"]
    assert "unshare: not permitted" in namespaces.detail
    assert "all processes" in namespaces.consequence
    assert namespaces.fix
    different = {finding.name for finding in findings if finding.is_active is None}
    assert different == {"host name", "idle sessions", "second wall of files"}


OF_CONTAINERS = sorted(set(diagnosis.CHECKS[Walls.CONTAINER].values()) - NOT_WALLS)


@pytest.mark.parametrize("check", OF_CONTAINERS)
def test_any_wall_of_a_container_with_a_hole_is_none(check):
    inside = dict(create_results(Walls.CONTAINER).check_results) | {check: (["went through"], "")}
    findings, _ = evaluate(Walls.CONTAINER, check_results=inside)
    assert diagnosis.level(findings) == "none"


def test_user_id_that_sessions_of_a_container_share_is_told_and_no_hole():
    one, two = create_results().host_views
    twin = trial_kernels.HostView(one.uids, one.uid, two.namespaces)
    findings, missing = evaluate(Walls.CONTAINER, host_views=(one, twin), shared_id_reason="no")
    assert "user id per session" in missing
    assert diagnosis.level(findings) == "container"
    [finding] = [finding for finding in findings if finding.name == "user id per session"]
    assert finding.detail.endswith(": no")
    assert "/dev/shm" in finding.consequence
    assert "root" in finding.fix


def test_no_findings_are_none():
    assert diagnosis.level(()) == "none"


def test_every_finding_says_what_is_lost_and_how_to_get_it():
    findings, _ = evaluate(check_results={})
    for finding in findings:
        assert finding.consequence
        assert finding.fix
        assert finding.detail


@pytest.mark.parametrize(
    "error", [errors.SandboxError("no"), errors.KernelStartError(), OSError(1, "no")], ids=repr
)
def test_pool_that_does_not_open_is_a_finding(error, tmp_path, monkeypatch):
    class Closed:
        async def __aenter__(self):
            raise error

        async def __aexit__(self, *_):
            pass

    monkeypatch.setattr(pools.Pool, "open", lambda _: Closed())
    bot = settings.Settings(paths=settings.Paths(data=tmp_path, runtime=tmp_path))
    first, *_ = findings = diagnosis.diagnose(bot)
    assert (first.name, first.is_active) == ("sandbox", False)
    assert str(error) in first.detail
    assert first.fix
    assert diagnosis.level(findings) == "none"


def test_host_that_lacks_room_is_told(tmp_path):
    limits = settings.Limits(workspace_bytes=1 << 60)
    paths = settings.Paths(data=tmp_path / "d", runtime=tmp_path / "r")
    bot = settings.Settings(limits=limits, paths=paths)
    assert not diagnosis.disk_finding(bot).is_active
    assert not (tmp_path / "d").exists()


def test_what_holds_the_disk_is_said(tmp_path):
    inner = tmp_path / "workspaces" / "0" / "data"
    inner.mkdir(parents=True)
    (inner / "f").write_bytes(bytes(3 << 20))
    (tmp_path / "x.db").write_bytes(bytes(1 << 20))
    (tmp_path / "elsewhere").symlink_to("/usr")
    bot = settings.Settings(paths=settings.Paths(data=tmp_path, runtime=tmp_path))
    detail = diagnosis.disk_finding(bot).detail
    assert re.search(r"the largest parts are 3(\.\d+)? MiB in workspaces, 1 MiB in x\.db", detail)


@pytest.mark.parametrize(("limit", "is_enough"), [(4096, True), (4095, False)])
def test_a_bot_with_few_open_files_is_told(monkeypatch, limit, is_enough):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, limit))
    assert diagnosis.open_files_finding().is_active is is_enough


# What the host does with a core dump, and the limit: whether a program of its own is started.
PATTERNS = {
    ("core", 0): False,
    ("|/lib/systemd/systemd-coredump %P", 1): False,
    ("|/lib/systemd/systemd-coredump %P", 0): True,
    ("@/run/coredump.socket", 1): True,
}


@pytest.mark.parametrize(("pattern", "limit"), PATTERNS)
def test_a_handler_of_crashes_is_told(monkeypatch, pattern, limit):
    monkeypatch.setattr(in_kernel_walls, "read_start", lambda _: pattern.encode())
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    wrong, _ = in_kernel_walls.core_dumps({})
    assert bool(wrong) is PATTERNS[pattern, limit]


@pytest.mark.skipif(os.geteuid() != 0, reason="speaks of root's user ids")
def test_range_of_ids_that_root_does_not_have_is_named():
    there = settings.Sandbox()
    beyond = settings.Sandbox(first_uid=2**32 - 500)
    assert "Root has no user ids" not in advice.advise("…", there)
    assert "Root has no user ids" in advice.advise("…", beyond)


def test_old_kernel_is_named():
    reason = "[Errno 38] mount_setattr: Function not implemented"
    assert "5.12" in advice.advise(reason, settings.Sandbox())


def test_wall_checks_see_what_goes_through_where_there_are_no_walls(tmp_path):
    """A probe that finds nothing anywhere would prove nothing."""
    bot = settings.Settings()
    trial = trial_kernels.trial_settings(bot, tmp_path)
    with trial_kernels.create_canaries(tmp_path, trial, bot) as told:
        # Being root, it would really write; and what is denied differs by machine.
        left_out = ["privileges", "system_calls", "nested", "python", "core_dumps"]
        left_out += ["read_only_root", "changes"]
        told |= {"doors": [1], "own_places": ["/tmp/"], "has_own_ids": True}
        told["processes_of_others"] = {"the bot": os.getpid()}
        for name in ("walls", "namespaces", "container_walls"):
            wrong = run_checks_unconfined("walls", name, excluded_checks=left_out, **told)
            # subprocess closes descriptors; what goes wrong without is seen in a kernel only.
            assert wrong.pop("descriptors", []) == []
            assert wrong
            assert all(wrong.values()), wrong


def test_trial_kernels_wait_for_no_packages_of_channels(tmp_path):
    packages = (settings.ChannelPackages(names=("humanize",)),)
    index = settings.PackageIndex(url="http://127.0.0.1:9/simple")
    bot = settings.Settings(package_index=index, packages=packages)
    assert not trial_kernels.trial_settings(bot, tmp_path).packages


def test_probe_leaves_the_environment_as_it_was(tmp_path):
    before = dict(os.environ)
    bot = settings.Settings()
    with trial_kernels.create_canaries(
        tmp_path, trial_kernels.trial_settings(bot, tmp_path), bot
    ) as told:
        assert told["variable"] in os.environ
    assert dict(os.environ) == before


def test_kernel_that_says_nothing_is_heard_as_silence():
    class Mute:
        async def execute(self, code, *, show, seconds=None):
            show(values.Text("stdout", "hello\n"))
            return values.Finished(values.Ending.OK, 0.0)

    assert asyncio.run(trial_kernels.run_checks(Mute(), "in_kernel_walls.py", {"mark": "m"})) == {}


def _logins(tmp_path, **more):
    server = settings.McpServer(name="jira", url="http://127.0.0.1:9/mcp", authorization="person")
    paths = settings.Paths(data=tmp_path)
    config = settings.Settings(mcp_servers=(server,), paths=paths, **more)
    (finding,) = diagnosis.login_findings(config)
    return finding


def test_logins_at_tools_need_an_address_where_people_are_elsewhere_and_keys(tmp_path):
    assert _logins(tmp_path).is_active
    slack = settings.Slack(bot_token="xoxb-1")
    assert "public_url is not set" in _logins(tmp_path, slack=slack).detail
    there = settings.ToolLogins(public_url="https://127.0.0.1/")
    assert _logins(tmp_path, slack=slack, tool_logins=there).is_active
    (tmp_path / "keys").write_text("none")
    (tmp_path / "keys").chmod(0o600)
    assert not _logins(tmp_path).is_active


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_file": "/run/secrets/x"},
        {"headers": {"authorization": "Bearer x"}},
        {"url": None, "command": ("/bin/true",)},
        {"authorization": "bot", "oauth": {"issuer": "http://127.0.0.1:9"}},
    ],
)
def test_a_server_has_either_an_account_of_the_bot_or_those_of_people(wrong):
    right = {"name": "jira", "url": "http://127.0.0.1:9/mcp", "authorization": "person"}
    settings.McpServer(**right)
    with pytest.raises(ValueError, match=r"log in|client_id"):
        settings.McpServer(**right | wrong)
    with pytest.raises(ValueError, match="https"):
        settings.ToolLogins(public_url="http://127.0.0.1")


def test_where_people_log_in_is_as_browsers_name_it():
    there = settings.ToolLogins(public_url="https://Bot.Example.org:443/")
    assert there.public_url == "https://bot.example.org"
    for wrong in ("https://bot.example.org/bot", "https://bot.example.org/?a"):
        with pytest.raises(ValueError, match="nothing may follow"):
            settings.ToolLogins(public_url=wrong)
