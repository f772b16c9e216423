"""Kernels that do not start, and who hears why."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import pathlib
import signal
import sys
import sysconfig

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.kernels import pools
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.kernels.provisioning import (
    provisioners,
    python_environments,
    start_parameters,
)
from tests import machine

pytestmark = pytest.mark.kernel


@pytest.fixture
def _quick_starts():
    """Nothing is quicker here than it is: the start is the subject."""


@pytest.fixture
def bot(tmp_path, short_path):
    return settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
    )


def _change_parameters(monkeypatch, **changes) -> None:
    build = start_parameters.build

    def build_changed(*arguments, **options):
        return dataclasses.replace(build(*arguments, **options), **changes)

    monkeypatch.setattr(start_parameters, "build", build_changed)


# What is wrong: (the start parameters, what the log says of it).
UNBUILDABLE = {
    "a mount": ({"proc_files": {"nothing": "x"}}, (errno.ENOENT, "mask_proc → mount")),
    "a user id": ({"uid": 4_000_000_000}, (0, "enter_namespaces")),
    "a resource": (
        {"rlimits": {"DATA": [1 << 30, 1 << 30], "NOFILE": [-5, -5]}},
        (0, "_priority → set_limits"),
    ),
    "a processor": ({"affinity": [4095]}, (errno.EINVAL, "_limit_and_lower_priority")),
    "a size": ({"temporary_bytes": -1}, (errno.EINVAL, "mount_temporary")),
}
# What only namespaces need.
MOUNTED = ("a mount", "a user id", "a size")


@pytest.mark.first_case
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=[pytest.mark.namespaces] if what in MOUNTED else [])
        for what in UNBUILDABLE
    ],
)
async def test_a_wall_that_cannot_be_built_is_named_in_the_log(bot, monkeypatch, caplog, what):
    changes, (code, step) = UNBUILDABLE[what]
    async with pools.Pool.open(bot) as pool:
        with monkeypatch.context() as patch:
            _change_parameters(patch, **changes)
            with pytest.raises(errors.KernelStartError) as raised:
                await pool.take("a")
        assert str(raised.value) == errors.KernelStartError.__doc__
        (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert line.startswith("kernel ")
        assert step in line
        assert not code or os.strerror(code) in line
        assert (await pool.take("a")).is_alive, "the next one does"


def _refuse(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_a_kernel_does_not_start_on_a_machine_without_descriptors(bot, monkeypatch):
    async with pools.Pool.open(bot) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(start_parameters, "listen_on_channels", _refuse)
            with pytest.raises(errors.KernelStartError):
                await pool.take("a")
        assert (await pool.take("a")).is_alive, "the next one does"


async def test_a_fork_server_does_not_start_on_a_machine_without_descriptors(bot, monkeypatch):
    monkeypatch.setattr(python_environments, "spawn", _refuse)
    with pytest.raises(errors.KernelStartError):
        async with pools.Pool.open(bot):
            pass


async def test_a_kernel_that_dies_before_its_use_says_how_in_the_log(bot, monkeypatch, caplog):
    # It needs threads, but only once it is confined.
    _change_parameters(monkeypatch, rlimits={"NPROC": [1, 1]})
    async with pools.Pool.open(bot) as pool:
        with pytest.raises(errors.KernelStartError):
            await pool.take("a")
    assert "ended unused: status " in caplog.text


async def test_a_kernel_that_dies_while_it_gets_its_files_says_how_in_the_log(
    bot, monkeypatch, caplog
):
    attach = provisioners.ForkProvisioner.attach

    async def attach_late(provisioner, *directories):
        # Its first process does both in the order in which it finds them.
        first, *_, kernel = provisioner.meter().pids()
        os.kill(first, signal.SIGSTOP)
        os.kill(kernel, signal.SIGKILL)
        # Longer than anybody waits for the last words of a kernel that was of use.
        asyncio.get_running_loop().call_later(1, os.kill, first, signal.SIGCONT)
        await attach(provisioner, *directories)

    async with pools.Pool.open(bot) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(provisioners.ForkProvisioner, "attach", attach_late)
            with pytest.raises(errors.KernelStartError):
                await pool.take("a")
    assert f"ended unused: status {signal.SIGKILL}" in caplog.text


async def test_files_that_are_not_attached_in_time_end_the_kernel(bot, monkeypatch, caplog):
    monkeypatch.setattr(provisioners, "_ATTACH_SECONDS", 0.3)
    seen = []
    attach = provisioners.ForkProvisioner.attach

    async def attach_stopped(provisioner, *directories):
        seen.append(provisioner)
        os.kill(provisioner.meter().pids()[0], signal.SIGSTOP)
        await attach(provisioner, *directories)

    async with pools.Pool.open(bot) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(provisioners.ForkProvisioner, "attach", attach_stopped)
            with pytest.raises(errors.KernelStartError, match="attached in time"):
                await pool.take("a")
        assert seen[0].ended.is_set()
        assert not seen[0].has_process
        assert "did not attach" in caplog.text
        assert (await pool.take("a")).is_alive


@pytest.fixture
def environment(short_path):
    """A virtual environment of a whole directory, which borrows its packages."""
    place = short_path / "here"
    library = sysconfig.get_path("purelib")
    packages = place / "lib" / pathlib.Path(library).parent.name / "site-packages"
    for directory in (place / "bin", packages):
        directory.mkdir(parents=True)
    short_path.chmod(0o755)
    (place / "bin" / "python").symlink_to(pathlib.Path(sys.executable).resolve())
    (place / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    (packages / "borrowed.pth").write_text(f"{library}\n")
    return place


def _with(bot, python, data):
    kernels = bot.kernels.model_copy(update={"python": python})
    paths = bot.paths.model_copy(update={"data": data})
    return bot.model_copy(update={"kernels": kernels, "paths": paths})


@pytest.mark.parametrize("name", ["lib/data", "bin/../share/data", "link"])
async def test_data_that_kernels_could_read_is_refused_at_the_start(bot, environment, name):
    (environment / "share").mkdir()
    (environment / "link").symlink_to("lib")
    here = _with(bot, environment / "bin" / "python", environment / name)
    with pytest.raises(errors.SettingsError, match=r"which code can read"):
        async with pools.Pool.open(here):
            pass


async def test_settings_that_kernels_could_read_are_refused_at_the_start(
    bot, environment, monkeypatch
):
    (environment / "lib" / ".env").write_text("secret")
    monkeypatch.chdir(environment / "lib")
    here = _with(bot, environment / "bin" / "python", bot.paths.data)
    with pytest.raises(errors.SettingsError, match=r"\.env lies in .*/lib, which code"):
        async with pools.Pool.open(here):
            pass


async def test_what_lies_beside_an_environment_is_not_in_sight(bot, environment, monkeypatch):
    for name in (".env", "interpreter-bot.toml", "pip.conf"):
        (environment / name).write_text("secret")
    monkeypatch.chdir(environment)
    printed = []
    look = (
        "import os, sys; print(sys.prefix)\n"
        "try: print(sorted(os.listdir(sys.prefix)))\n"
        "except PermissionError: print('refused')"
    )
    async with pools.Pool.open(
        _with(bot, environment / "bin" / "python", environment / "data")
    ) as pool:
        kernel = await pool.take("a")
        await kernel.execute(look, show=printed.append)
    prefix, names = "".join(one.text for one in printed).splitlines()
    assert prefix == str(environment)
    assert names == ("['bin', 'lib', 'pyvenv.cfg']" if machine.offers_namespaces() else "refused")


@pytest.mark.namespaces
async def test_an_end_of_the_first_process_is_the_end_of_the_wait(bot):
    async with pools.Pool.open(bot) as pool:
        kernel = await pool.take("a")
        kernel = pool.kernels["a"]
        pids = kernel.provisioner.meter().pids()
        os.kill(pids[0], signal.SIGKILL)
        await kernel.provisioner.wait()
        assert not kernel.is_alive
        assert not any(map(session_metering.start_ticks, pids))
