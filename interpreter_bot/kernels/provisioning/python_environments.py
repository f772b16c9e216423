"""The Python environment of kernels: its paths, and how to start a clean process in it."""

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

_GUEST_FILE = pathlib.Path(__file__).resolve().parents[2] / "guest" / "__main__.py"
# Names and versions are read from names of directories, as the standard for installed packages
# guarantees: reading all metadata takes 0.2 s.
_PROBE_CODE = """
import json, os, sys
installed = {}
for entry in sys.path:
    for name in os.listdir(entry) if os.path.isdir(entry) else ():
        package, dash, version = name.removesuffix(".dist-info").rpartition("-")
        if dash and name.endswith(".dist-info"):
            installed[package] = [version, os.path.exists(os.path.join(entry, name, "REQUESTED"))]
print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, sys.path, installed]))
"""
_MAX_PACKAGES_LISTED = 60
TOOLS_DIRECTORY = "/opt/bin"
"""Directory in the sandbox for programs of packages."""
# Parts of an environment that kernels see; its directory may contain unrelated files.
_VISIBLE_PARTS = (
    "bin",
    "conda-meta",
    "etc",
    "include",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "pyvenv.cfg",
    "sbin",
    "share",
    "ssl",
)
# System directories that the sandbox shows at the same path; it also shows small files of /etc.
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
        readable_paths: paths that the sandbox must show, besides the system's.
        hidden_paths: directories below those paths that the sandbox must hide.
        path: PATH for programs that kernels start.
        packages: versions of the packages worth listing, by name.
        distributions: versions of all installed packages.
        absent_modules: for each module that is not installed, the group of libraries that has it.
    """

    executable: str
    readable_paths: list[str]
    hidden_paths: list[str]
    path: str
    packages: Mapping[str, str]
    distributions: Mapping[str, str]
    absent_modules: Mapping[str, str]


def spawn(
    environment: Environment, control_fd: int, *, cores: int, home: str = WALLED_HOME
) -> subprocess.Popen[bytes]:
    """Start the fork server's process without inherited environment, descriptors or terminal."""
    # A descriptor hides from kernels where the bot is installed; see `guest/__main__`.
    bot_directory_fd = os.open(_GUEST_FILE.parents[1], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        guest_path = (
            f"/proc/self/fd/{bot_directory_fd}/{_GUEST_FILE.parent.name}/{_GUEST_FILE.name}"
        )
        return subprocess.Popen(
            [
                environment.executable,
                "-I",
                "-B",
                guest_path,
                str(control_fd),
                str(bot_directory_fd),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=_clean_environment(environment, cores=cores, home=home),
            pass_fds=[control_fd, bot_directory_fd],
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(bot_directory_fd)


def inspect_environment(python: pathlib.Path) -> Environment:
    """Inspect a Python environment by running its interpreter.

    Raises:
        KernelStartError: it cannot be run.
    """
    try:
        completed = subprocess.run(
            [str(python), "-I", "-c", _PROBE_CODE],
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=True,
        )
        prefix, base_prefix, executable, path, installed_packages = json.loads(completed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise errors.KernelStartError(host_words.python_unusable(python)) from error
    prefixes = [prefix, base_prefix]
    outside_paths = [
        entry
        for entry in path
        if entry.startswith("/")
        and not any(pathlib.PurePath(entry).is_relative_to(root) for root in prefixes)
        and "site-packages" in entry
    ]
    candidates = [f"{path}/{part}" for path in prefixes for part in _VISIBLE_PARTS]
    readable_paths = [
        path
        for path in dict.fromkeys([*filter(os.path.lexists, candidates), *outside_paths])
        if not path.startswith("/usr")
    ]
    # The bot's own directory, and directories of its files in site-packages.
    hidden_paths = [str(_GUEST_FILE.parents[1])]
    hidden_paths += [
        f"{entry}/{_GUEST_FILE.parents[1].name}" for entry in path if "site-packages" in entry
    ]
    return Environment(
        executable,
        readable_paths,
        list(dict.fromkeys(hidden_paths)),
        f"{prefix}/bin:/usr/local/bin:/usr/bin:/bin:{TOOLS_DIRECTORY}",
        _choose_listed_packages(
            installed_packages,
            is_ours=(pathlib.Path(prefix) / kernel_environment.STATE_FILE_NAME).exists(),
        ),
        {_normalize_name(name): version for name, (version, _) in installed_packages.items()},
        kernel_environment.absent_modules(pathlib.Path(prefix)),
    )


def check_private_paths(environment: Environment, private_paths: Sequence[pathlib.Path]) -> None:
    """Check that an environment does not show private paths to kernels, even missing ones.

    Raises:
        SettingsError: kernels could read one of them.
    """
    for path in private_paths:
        real_path = pathlib.Path(os.path.realpath(path))
        for tree in (*_SYSTEM_DIRECTORIES, *environment.readable_paths):
            if real_path.is_relative_to(os.path.realpath(tree)):
                raise errors.SettingsError(host_words.readable_by_code(path, tree))


def _choose_listed_packages(
    installed_packages: Mapping[str, Sequence[object]], *, is_ours: bool
) -> dict[str, str]:
    """Choose the installed packages that are worth listing, without their dependencies.

    Args:
        installed_packages: for each package, its version and whether somebody requested it by name.
        is_ours: whether the environment was made from our locks, which name every dependency.
    """
    listed_packages = kernel_environment.listed_packages()
    by_normal_name = {
        _normalize_name(name): (str(version), is_requested)
        for name, (version, is_requested) in installed_packages.items()
    }
    chosen_packages = (
        (name, version)
        for name, (version, is_requested) in sorted(by_normal_name.items())
        if name in listed_packages or (is_requested and not is_ours)
    )
    return dict(list(chosen_packages)[:_MAX_PACKAGES_LISTED])


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _clean_environment(environment: Environment, *, cores: int, home: str) -> dict[str, str]:
    """Build the environment variables of every kernel; none are inherited from the bot."""
    variables = {
        "PATH": environment.path,
        "HOME": home,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": f"{home}/.matplotlib",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Threads of Arrow's own allocators would not survive the fork.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    return variables | {name: str(cores) for name in _THREAD_COUNT_VARIABLES}
