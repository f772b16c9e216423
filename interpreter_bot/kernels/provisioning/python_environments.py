"""The Python environment of kernels: its paths, and the start of a clean process of it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Mapping, Sequence

from interpreter_bot import errors
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.wording import host_words

_GUEST = pathlib.Path(__file__).resolve().parents[2] / "guest" / "__main__.py"
# Names and versions come from the directories' names, as the standard for installed packages
# guarantees: reading every package's metadata takes 0.2 s.
_PROBE = """
import json, os, sys
installed = {}
for entry in sys.path:
    for name in os.listdir(entry) if os.path.isdir(entry) else ():
        package, dash, version = name.removesuffix(".dist-info").rpartition("-")
        if dash and name.endswith(".dist-info"):
            installed[package] = [version, os.path.exists(os.path.join(entry, name, "REQUESTED"))]
print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, sys.path, installed]))
"""
_MAX_PACKAGES = 60
TOOLS = "/opt/bin"
"""Directory in the sandbox for programs of packages."""
# Parts of an environment that kernels see; its directory may contain unrelated files.
_VISIBLE_PARTS = (
    *("bin", "conda-meta", "etc", "include", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg"),
    *("sbin", "share", "ssl"),
)
# System directories that the sandbox shows at the same path, besides small files of /etc.
_SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
WALLED_HOME = "/tmp/home"  # noqa: S108 - in a tmpfs that each kernel has to itself
_THREAD_COUNT_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Environment:
    """Python environment of kernels.

    Attributes:
        executable: its interpreter.
        readable: paths that must be visible in the sandbox, besides the system's.
        hidden: directories below these that must be hidden.
        path: PATH for programs it starts.
        packages: versions of the packages worth listing, by name.
        distributions: versions of all installed packages.
        absent: names of groups of libraries that are not installed, by module.
    """

    executable: str
    readable: list[str]
    hidden: list[str]
    path: str
    packages: Mapping[str, str]
    distributions: Mapping[str, str]
    absent: Mapping[str, str]


def spawn(
    environment: Environment, control: int, *, cores: int, home: str = WALLED_HOME
) -> subprocess.Popen[bytes]:
    """Start the fork server's process without inherited environment, descriptors or terminal."""
    # A descriptor hides from kernels where the bot is installed; see `guest/__main__`.
    place = os.open(_GUEST.parents[1], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        start = f"/proc/self/fd/{place}/{_GUEST.parent.name}/{_GUEST.name}"
        return subprocess.Popen(
            [environment.executable, "-I", "-B", start, str(control), str(place)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=_clean_environment(environment, cores=cores, home=home),
            pass_fds=[control, place],
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(place)


def inspect_environment(python: pathlib.Path) -> Environment:
    """Inspect a Python environment by running its interpreter.

    Raises:
        KernelStartError: it cannot be run.
    """
    try:
        completed = subprocess.run(
            [str(python), "-I", "-c", _PROBE],
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=True,
        )
        prefix, base_prefix, executable, path, installed = json.loads(completed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise errors.KernelStartError(host_words.python_unusable(python)) from error
    prefixes = [prefix, base_prefix]
    outside = [
        entry
        for entry in path
        if entry.startswith("/")
        and not any(pathlib.PurePath(entry).is_relative_to(root) for root in prefixes)
        and "site-packages" in entry
    ]
    candidates = [f"{place}/{part}" for place in prefixes for part in _VISIBLE_PARTS]
    readable = [
        place
        for place in dict.fromkeys([*filter(os.path.lexists, candidates), *outside])
        if not place.startswith("/usr")
    ]
    # The bot's own directory, and where an installation of it leaves files.
    hidden = [str(_GUEST.parents[1])]
    hidden += [f"{entry}/{_GUEST.parents[1].name}" for entry in path if "site-packages" in entry]
    return Environment(
        executable,
        readable,
        list(dict.fromkeys(hidden)),
        f"{prefix}/bin:/usr/local/bin:/usr/bin:/bin:{TOOLS}",
        _packages(
            installed, is_ours=(pathlib.Path(prefix) / kernel_environment.STATE_FILE_NAME).exists()
        ),
        {_normalize_name(name): version for name, (version, _) in installed.items()},
        kernel_environment.absent_modules(pathlib.Path(prefix)),
    )


def check_private_paths(environment: Environment, private: Sequence[pathlib.Path]) -> None:
    """Check that an environment does not show private paths to kernels, even missing ones.

    Raises:
        SettingsError: kernels could read one of them.
    """
    for path in private:
        real = pathlib.Path(os.path.realpath(path))
        for tree in (*_SYSTEM_DIRECTORIES, *environment.readable):
            if real.is_relative_to(os.path.realpath(tree)):
                raise errors.SettingsError(host_words.readable_by_code(path, tree))


def _packages(installed: Mapping[str, Sequence[object]], *, is_ours: bool) -> dict[str, str]:
    """Choose the installed packages worth listing, without their dependencies.

    Args:
        installed: for each package, its version and whether somebody requested it by name.
        is_ours: whether the environment was made from our locks, which name every dependency.
    """
    listed_packages = kernel_environment.listed_packages()
    by_normal_name = {
        _normalize_name(name): (str(version), is_requested)
        for name, (version, is_requested) in installed.items()
    }
    listed = (
        (name, version)
        for name, (version, is_requested) in sorted(by_normal_name.items())
        if name in listed_packages or (is_requested and not is_ours)
    )
    return dict(list(listed)[:_MAX_PACKAGES])


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _clean_environment(environment: Environment, *, cores: int, home: str) -> dict[str, str]:
    """Build the environment variables of every kernel: an allow-list, none of the bot's."""
    fixed = {
        "PATH": environment.path,
        "HOME": home,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": f"{home}/.matplotlib",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The system's memory pool, because threads of another allocator would not survive the fork.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    return fixed | {name: str(cores) for name in _THREAD_COUNT_VARIABLES}
