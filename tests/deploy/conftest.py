"""A small Debian with the bot installed, made from the distribution's own packages."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

from interpreter_bot.kernels.libraries import kernel_environment

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HOME = "opt/interpreter-bot"
USER = "interpreter-bot"
_PACKAGES = "systemd-sysv,dbus,python3,passwd"
_BOOT_SECONDS = 180
# Containers need version 2 of the control groups; mounting it in a new mount namespace does not
# disturb the machine. Processes that still run at the end are killed with the process namespace.
_UNSHARE_COMMAND = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_SCRIPT = """
    if [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; then
        umount -l /sys/fs/cgroup/* 2>/dev/null
        umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 99
    fi
    exec "$@"
"""


def require_programs(*programs: str) -> None:
    """Skip the test if one of Debian's programs is not installed."""
    if missing_programs := [name for name in programs if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing_programs)} is not installed")


def run_in_namespaces(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that boots a system or runs a container, in new namespaces."""
    return subprocess.run(
        [*_UNSHARE_COMMAND, "sh", "-c", _SCRIPT, "apart", *command],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BOOT_SECONDS,
        check=False,
    )


@pytest.fixture(scope="session")
def system(request, tmp_path_factory) -> pathlib.Path:
    """The root directory of a Debian of this release, with the bot where its unit expects it."""
    if "deploy" not in request.config.option.markexpr:
        pytest.skip("takes minutes; `make test-deploy` runs it")
    if os.geteuid():
        pytest.skip("making a Debian takes root")
    require_programs("mmdebstrap", "unshare")
    release = platform.freedesktop_os_release()
    if release["ID"] != "debian":
        pytest.skip("mmdebstrap here would make another distribution than this one")
    root = tmp_path_factory.mktemp("deploy") / "root"
    options = ["--quiet", "--variant=minbase", f"--include={_PACKAGES}"]
    subprocess.run(["mmdebstrap", *options, release["VERSION_CODENAME"], root], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (root / "usr/bin" / version).exists():
        pytest.skip(f"this Debian has no {version}, which the libraries here are made for")
    _install(root, version)
    # The bot's own user must be able to read it.
    root.chmod(0o755)
    return root


def _install(root: pathlib.Path, version: str) -> None:
    environment = root / HOME / ".venv"
    packages = _copy(pathlib.Path(sys.prefix), environment, version)
    package = packages / "interpreter_bot"
    shutil.copytree(REPOSITORY / "interpreter_bot", package)
    shutil.copytree(REPOSITORY / "migrations", package / "store/migrations")
    script = environment / "bin/interpreter-bot"
    script.write_text(
        f"#!/{HOME}/.venv/bin/python\n"
        "from interpreter_bot import cli\n"
        "raise SystemExit(cli.main())\n"
    )
    script.chmod(0o755)
    kernels = pathlib.Path(sys.prefix, "kernels")
    _copy(kernels, environment / "kernels", version)
    shutil.copy2(kernels / kernel_environment.STATE_FILE_NAME, environment / "kernels")


def _copy(source: pathlib.Path, environment: pathlib.Path, version: str) -> pathlib.Path:
    """Make an environment of the root's own Python; return the directory of its packages."""
    packages = pathlib.Path("lib", version, "site-packages")
    shutil.copytree(
        source / packages,
        environment / packages,
        symlinks=True,
        copy_function=_link_or_copy,
        # The package is copied from the checkout instead.
        ignore=shutil.ignore_patterns("_editable_impl_*", "interpreter_bot"),
    )
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to("/usr/bin/python3")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return environment / packages


def _link_or_copy(source: str, target: str) -> None:
    """Hard-link a file, to save space; copy it if that fails."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
