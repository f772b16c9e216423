"""Control groups, on the real ones of this machine where it lets us."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.kernels.metering import procfs, session_metering
from interpreter_bot.kernels.provisioning import cgroups

MIB = 1024 * 1024


@pytest.fixture
def groups():
    found = cgroups.Cgroups.probe("auto")
    if found.version == 0:
        pytest.skip(found.reason)
    yield found
    found.close()


@pytest.fixture
def start():
    """Start Python code that waits for a line first, so that it can be put into a group."""
    started = []

    def start_one(code):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "input()\n" + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def go(process):
    out, _ = process.communicate("\n", timeout=30)
    return out


def limits(**changes):
    return settings.Limits(**{"memory_bytes": 64 * MIB, "processes": 8, **changes})


def places(groups):
    """The directories of one owner, one per hierarchy."""
    return [pathlib.Path(base, groups.instance) for base in set(groups.bases.values())]


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _peak_bytes(group):
    place, names = (
        group.directories_by_controller["memory"],
        ("memory.peak", "memory.max_usage_in_bytes"),
    )
    found = [path for name in names if (path := pathlib.Path(place, name)).exists()]
    return int(found[0].read_text()) if found else None


def test_too_much_memory_kills_and_is_counted(groups, start):
    group = groups.create("one", limits(), headroom_bytes=0)
    process = start("x = bytearray(200 << 20)")
    group.add(process.pid)
    go(process)
    assert process.returncode == -signal.SIGKILL
    assert group.oom_kills() == 1
    assert _peak_bytes(group) <= 64 * MIB


def test_memory_of_several_processes_counts_together(groups, start):
    group = groups.create("one", limits(), headroom_bytes=0)
    many = [start("x = bytearray(40 << 20); print(1, flush=True); input()") for _ in range(2)]
    for process in many:
        group.add(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
    wait_for(group.oom_kills)
    assert group.oom_kills() == 1


def test_a_memfd_counts_as_memory(groups, start):
    group = groups.create("one", limits(), headroom_bytes=0)
    process = start(
        "import os\nf = os.memfd_create('x')\nfor _ in range(200): os.write(f, bytes(1 << 20))"
    )
    group.add(process.pid)
    go(process)
    assert process.returncode == -signal.SIGKILL
    assert group.oom_kills() == 1


def test_headroom_is_added(groups, start):
    group = groups.create("one", limits(), headroom_bytes=200 * MIB)
    process = start("x = bytearray(150 << 20); print('fits')")
    group.add(process.pid)
    assert go(process) == "fits\n"
    assert group.oom_kills() == 0
    assert _peak_bytes(group) > 150 * MIB


def test_forks_stop_at_the_limit(groups, start):
    group = groups.create("one", limits(processes=8))
    process = start(
        "import os, time\n"
        "children = []\n"
        "try:\n"
        "    while True:\n"
        "        pid = os.fork()\n"
        "        if pid == 0: time.sleep(60)\n"
        "        children.append(pid)\n"
        "except BlockingIOError:\n"
        "    print(len(children), flush=True)\n"
        "for child in children: os.kill(child, 9)\n"
    )
    group.add(process.pid)
    assert int(go(process)) == 8 + 2 - 1


def test_burning_cpu_is_bounded_and_counted(groups, start):
    group = groups.create("one", limits(cpu_cores=0.5))
    process = start(
        "import time\n"
        "end = time.monotonic() + 1\n"
        "while time.monotonic() < end: pass\n"
        "print(time.process_time())"
    )
    group.add(process.pid)
    used = float(go(process))
    assert used < 0.8
    assert group.cpu_seconds() == pytest.approx(used, abs=0.2)


def test_usage_is_seen_while_it_runs(groups, start):
    group = groups.create("one", limits())
    process = start("x = bytearray(30 << 20); print('x', flush=True); input()")
    group.add(process.pid)
    before = group.memory_bytes()
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    assert before < 10 * MIB
    assert 30 * MIB <= group.memory_bytes() < 50 * MIB


def test_kill_reaches_everybody_and_remove_waits_for_them(groups, start):
    group = groups.create("one", limits())
    process = start(
        "import os, time, signal\n"
        "for s in (signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        "for _ in range(2): os.fork()\n"
        "os.setsid() if os.getpid() != os.getpgid(0) else None\n"
        "print('up', flush=True); time.sleep(60)"
    )
    group.add(process.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    for _ in range(4):
        process.stdout.readline()
    inside = cgroups.processes(group.directories_by_controller["pids"])
    assert len(inside) == 4
    assert group.remove()
    assert process.wait(30) == -signal.SIGKILL
    assert not any(place.exists() for place in map(pathlib.Path, group.directories))
    assert group.remove(), "removing what is gone is no fault"


def test_a_fork_storm_is_killed(groups, start):
    group = groups.create("one", limits(processes=64))
    process = start("import os\nwhile True:\n    try:\n        os.fork()\n    except OSError: pass")
    group.add(process.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    wait_for(lambda: len(cgroups.processes(group.directories_by_controller["pids"])) > 50)
    assert group.remove()


def test_readings_of_a_removed_group_are_zero(groups):
    group = groups.create("one", limits())
    assert group.remove()
    readings = (group.memory_bytes(), group.oom_kills(), group.cpu_seconds())
    assert readings == (0, 0, 0.0)


def test_a_vanished_process_cannot_be_added(groups, start):
    group = groups.create("one", limits())
    process = start("")
    go(process)
    with pytest.raises(errors.KernelStartError):
        group.add(process.pid)


def test_a_single_threaded_process_enters_by_itself_even_as_another_user(groups):
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    group = groups.create("one", limits())
    doors = group.entry_files()
    writes = "; ".join(f"echo 0 >&{door}" for door in doors)
    try:
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"{writes}; read line"],
            stdin=subprocess.PIPE,
            pass_fds=doors,
            user=1500,
            group=1500,
            extra_groups=[],
        )
    finally:
        for door in doors:
            os.close(door)
    try:
        wait_for(lambda: all(process.pid in cgroups.processes(d) for d in group.joined_directories))
    finally:
        process.communicate()


@pytest.mark.parametrize("kind", ["what this machine has", "version 2"])
def test_frozen_processes_do_not_run_and_can_be_killed(request, start, kind):
    if kind == "version 2":
        place = request.getfixturevalue("unified_group")
        group = cgroups.Group(2, dict.fromkeys(("memory", "pids", "cpu"), place))
    else:
        group = request.getfixturevalue("groups").create("one", limits())
    process = start("import os\nos.fork()\nwhile True: pass")
    group.add(process.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    if not group.can_freeze:
        pytest.skip("version 2 is not mounted beside version 1")
    directory = group.directories[0]
    wait_for(lambda: len(cgroups.processes(directory)) == 2)

    def clocks():
        return list(map(procfs.processor_time_ns, cgroups.processes(directory)))

    def are_still():
        before = clocks()
        time.sleep(0.5)
        return clocks() == before

    group.set_frozen(True)
    # On a busy machine it takes a while until processes are frozen.
    wait_for(are_still)
    assert are_still()
    before = clocks()
    group.set_frozen(False)
    wait_for(lambda: clocks() != before)
    group.set_frozen(True)
    assert group.remove()
    assert process.wait(30) == -signal.SIGKILL
    group.set_frozen(True)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, {"cpu.shares": 512, "blkio.weight": 250, "blkio.bfq.weight": 50}),
        (2, {"cpu.weight": 50, "io.weight": 50, "io.bfq.weight": 50}),
    ],
)
def test_weights_are_of_processor_and_disk(tmp_path, version, expected):
    for file in expected:
        (tmp_path / file).touch()
    directories = dict.fromkeys(("memory", "pids", "cpu", "blkio", "io"), str(tmp_path))
    cgroups.Group(version, directories).set_weight(0.5)
    assert {file: int((tmp_path / file).read_text()) for file in expected} == expected


def test_disk_is_shared_if_its_hierarchy_can_be_written(groups):
    _, hierarchies = cgroups.own_cgroups(pathlib.Path("/proc/self"))
    if groups.version != 1 or not os.access(hierarchies.get("blkio", ""), os.W_OK):
        pytest.skip("no hierarchy of version 1 for disks")
    assert "blkio" in groups.bases


def test_a_name_is_taken_once_and_leaves_nothing_behind_when_refused(groups):
    group = groups.create("one", limits())
    with pytest.raises(errors.KernelStartError):
        groups.create("one", limits())
    assert all(pathlib.Path(place).exists() for place in group.directories)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x" * 65, "a\nb"])
def test_a_strange_name_is_refused(groups, name):
    with pytest.raises(ValueError, match="not a name"):
        groups.create(name, limits())


def test_close_removes_what_is_left(groups, start):
    group = groups.create("one", limits())
    process = start("import time; time.sleep(60)")
    group.add(process.pid)
    groups.close()
    assert process.wait(30) == -signal.SIGKILL
    assert not any(place.exists() for place in places(groups))


OWNER = """
import sys
from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import cgroups
import subprocess
found = cgroups.Cgroups.probe("auto")
group = found.create("left", settings.Limits())
sleeper = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
group.add(sleeper.pid)
print(found.instance, sleeper.pid, flush=True)
input()
"""


@pytest.fixture
def owner():
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=pathlib.Path(__file__).parents[4],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_leftovers_of_the_dead_are_swept_and_the_living_kept(groups, owner):
    instance, sleeper = owner.stdout.readline().split()
    theirs = [place.with_name(instance) for place in places(groups)]
    groups.sweep()
    assert all(place.joinpath("kernel-left").exists() for place in theirs)
    assert session_metering.start_ticks(int(sleeper)) > 0
    owner.kill()
    # Nobody has waited for it yet: a zombie is dead.
    wait_for(lambda: cgroups.is_of_dead_bot(instance))
    # At least this one; other bots on this machine may have died just as well.
    assert groups.sweep() >= 1
    assert not any(place.exists() for place in theirs)
    assert session_metering.start_ticks(int(sleeper)) == 0
    assert all(place.exists() for place in places(groups))


def test_owners_of_other_pid_namespaces_and_strangers_are_left_alone():
    ours = cgroups.instance_name()
    dead = re.sub(r"-\d+-(\d+)\.", r"-1-\1.", ours)
    assert not cgroups.is_of_dead_bot(ours)
    assert cgroups.is_of_dead_bot(dead)
    assert not cgroups.is_of_dead_bot(re.sub(r"-\d+\.", "-1.", dead))
    assert not cgroups.is_of_dead_bot("interpreter-bot.main")
    assert not cgroups.is_of_dead_bot("interpreter-bot-x")


def test_two_in_one_process_do_not_meet(groups):
    other = cgroups.Cgroups.probe("auto")
    try:
        group = groups.create("one", limits())
        other.create("one", limits())
    finally:
        other.close()
    assert all(pathlib.Path(place).exists() for place in group.directories)


def test_off_is_none():
    found = cgroups.Cgroups.probe("off")
    assert (found.version, found.reason) == (0, "control groups are switched off")
    with pytest.raises(errors.SandboxError, match="switched off"):
        found.create("one", limits())


@pytest.fixture
def tree(tmp_path):
    """A machine whose control groups are plain directories, in which nothing takes effect."""

    def make(own, mounts):
        (tmp_path / "cgroup").write_text("".join(f"{line}\n" for line in own))
        lines = []
        for point, root, kind, options in mounts:
            (tmp_path / point).mkdir(parents=True, exist_ok=True)
            shown = str(tmp_path / point).replace(" ", "\\040")
            lines.append(f"30 20 0:2 {root} {shown} rw shared:9 - {kind} none {options}\n")
        (tmp_path / "mountinfo").write_text("".join(lines))
        return tmp_path

    return make


V1 = [(name, "/", "cgroup", f"rw,{name}") for name in ("memory", "pids", "cpu,cpuacct")]
OWN_V1 = ["3:memory:/a/b", "2:pids:/", "1:cpu,cpuacct:/gone", "0::/"]


def test_our_place_is_found_or_else_the_root_of_the_hierarchy(tree):
    proc = tree(OWN_V1, [("x y/" + point, *rest) for point, *rest in V1])
    (proc / "x y/memory/a/b").mkdir(parents=True)
    assert cgroups.own_cgroups(proc) == (
        None,
        {
            "memory": str(proc / "x y/memory/a/b"),
            "pids": str(proc / "x y/pids"),
            "cpu": str(proc / "x y/cpu,cpuacct"),
            "cpuacct": str(proc / "x y/cpu,cpuacct"),
        },
    )


def test_a_container_sees_its_place_as_the_root_of_the_mount(tree):
    proc = tree(
        ["1:memory:/docker/1/x", "0::/../1"],
        [
            ("memory", "/docker/1", "cgroup", "rw,memory"),
            ("two", "/", "cgroup2", "rw"),
        ],
    )
    (proc / "memory/x").mkdir()
    assert cgroups.own_cgroups(proc) == (None, {"memory": str(proc / "memory/x")})


def test_nothing_mounted_is_none(tree):
    found = cgroups.Cgroups.probe("auto", proc=tree(["0::/"], []))
    assert (found.version, found.reason) == (0, "no control groups: none are mounted")


def test_unreadable_is_none(tmp_path):
    assert cgroups.Cgroups.probe("auto", proc=tmp_path).version == 0


def test_a_malformed_listing_is_none(tree):
    assert cgroups.Cgroups.probe("auto", proc=tree(["what?"], [])).version == 0


def test_groups_without_effect_are_none_and_nothing_is_left(tree):
    proc = tree(OWN_V1, V1)
    found = cgroups.Cgroups.probe("auto", proc=proc)
    assert found.version == 0
    assert "version 1: [Errno 2]" in found.reason
    assert [path for path in proc.rglob("*") if "interpreter-bot" in path.name] == []


class TestVersion2:
    """Its files are plain ones here: what is written shows what would be asked of the kernel."""

    @pytest.fixture
    def base(self, tmp_path):
        base = tmp_path / "bot.service"
        base.mkdir()
        files = {
            "cgroup.controllers": "cpu io memory pids",
            "cgroup.subtree_control": "",
            "cgroup.type": "domain",
            "cgroup.procs": f"{os.getpid()}\n",
        }
        for name, text in files.items():
            (base / name).write_text(text)
        return base

    @pytest.fixture
    def main(self, base):
        main = base / cgroups.MAIN_GROUP_NAME
        main.mkdir()
        (main / "cgroup.procs").write_text("")
        return main

    def mark(self, base):
        try:
            os.setxattr(base, "user.delegate", b"1")
        except OSError as error:
            pytest.skip(f"no extended attributes here: {error}")

    def test_delegated_moves_itself_into_a_leaf_and_enables(self, base, main):
        self.mark(base)
        assert cgroups.claim(str(base), ["memory", "pids"]) == str(base)
        assert (main / "cgroup.procs").read_text() == str(os.getpid())
        assert (base / "cgroup.subtree_control").read_text() == "+memory +pids"

    def test_a_bot_that_is_in_the_leaf_already_stays(self, base, main):
        self.mark(base)
        (base / "cgroup.subtree_control").write_text("cpu memory pids")
        assert cgroups.claim(str(main), ["memory", "pids"]) == str(base)
        assert (main / "cgroup.procs").read_text() == ""

    def test_not_delegated_is_refused_and_nothing_moves(self, base, main, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        with pytest.raises(OSError, match="Delegate=yes"):
            cgroups.claim(str(base), ["memory"])
        assert (main / "cgroup.procs").read_text() == ""
        assert (base / "cgroup.subtree_control").read_text() == ""

    def test_sharing_with_a_shell_is_refused(self, base, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        (base / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getpid() + 1}\n")
        with pytest.raises(OSError, match="Delegate=yes"):
            cgroups.claim(str(base), ["memory"])

    def test_a_missing_controller_is_named(self, base):
        with pytest.raises(OSError, match="has no hugetlb, rdma controller"):
            cgroups.claim(str(base), ["memory", "rdma", "hugetlb"])

    def test_a_refusal_moves_back(self, base, main, monkeypatch):
        self.mark(base)

        def refuse(*_):
            raise OSError(16, "busy")

        monkeypatch.setattr(cgroups, "enable", refuse)
        (base / "cgroup.procs").write_text(f"{os.getpid():>12}\n")
        with pytest.raises(OSError, match="busy"):
            cgroups.claim(str(base), ["memory"])
        assert (base / "cgroup.procs").read_text().startswith(str(os.getpid()))
        assert (main / "cgroup.procs").read_text() == str(os.getpid())

    def test_limits_are_written_and_readings_read(self, base, monkeypatch):
        real = os.mkdir

        def mkdir(path):
            real(path)
            for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max"):
                pathlib.Path(path, name).write_text("")

        found = cgroups.Cgroups(2, "", bases=dict.fromkeys(("memory", "pids", "cpu"), str(base)))
        (base / found.instance).mkdir()
        monkeypatch.setattr(os, "mkdir", mkdir)
        group = found.create("one", limits(cpu_cores=1.5), headroom_bytes=MIB)
        place = base / found.instance / "kernel-one"
        names = ("memory.max", "memory.swap.max", "pids.max", "cpu.max")
        wrote = [(place / name).read_text() for name in names]
        assert wrote == [str(65 * MIB), "0", "10", "150000 100000"]
        (place / "memory.current").write_text("5000\n")
        (place / "memory.stat").write_text("anon 1\ninactive_file 2000\nactive_file 7\n")
        (place / "memory.events").write_text("low 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n")
        (place / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
        readings = (group.memory_bytes(), group.oom_kills())
        assert readings == (3000, 2)
        assert group.cpu_seconds() == 2.5
