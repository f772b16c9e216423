"""The Python environment of kernels, which uv builds from the locks.

It is separate from the bot's environment, so that code sees none of the bot's libraries. An
environment in use never changes: if the locks change, a new one is built beside it, and a link is
switched once the new one is complete. A process that uses an environment locks its directory
against removal.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from interpreter_bot import errors
from interpreter_bot.wording import host_words

if TYPE_CHECKING:
    from interpreter_bot import settings

_log = logging.getLogger(__name__)

GROUPS: Final = ("core", "full", "media")
STATE_FILE_NAME: Final = ".libraries.json"
"""File in a complete environment that was built here, with its groups and the digest of locks."""
_FAILURE_FILE_NAME: Final = ".failure"
_COMPILED_FILE_NAME: Final = ".compiled"
"""File in an environment: empty until all modules are compiled, and locked during compilation.

Modules are compiled again if those in `guest` are newer than this file."""
_FONTS_PATH: Final = "share/matplotlib"
# After a failure, other processes that the bot starts must not try again at once.
_RETRY_SECONDS: Final = 600.0
_DIGEST_DIGITS: Final = 12
_BUILT_NAME_PATTERN: Final = re.compile(rf".*-[0-9a-f]{{{_DIGEST_DIGITS}}}")
_LOCKS_DIRECTORY: Final = pathlib.Path(__file__).parent
_GUEST_DIRECTORY: Final = pathlib.Path(__file__).resolve().parents[2] / "guest"
_PACKAGE_NAME_PATTERN: Final = re.compile(r"[\w.-]+")
# Code that compiles our modules for kernels, and all modules of libraries except tests and vendored
# ones (templates and code for other Pythons cannot be compiled). It uses several processes, unless
# the machine gives a plain user no semaphores. Then it imports matplotlib's font manager, which
# writes a list of the system's fonts if there is none.
_COMPILE_CODE: Final = """
import compileall, fcntl, os, re, shutil, sys
guest, library, mark, fonts, niceness = sys.argv[1:]
os.nice(int(niceness))
with open(mark, "a") as compiled:
    fcntl.flock(compiled, fcntl.LOCK_EX)
    compileall.compile_dir(guest, quiet=2)
    is_compiled = os.path.getsize(mark)
    if not is_compiled:
        left_out = re.compile("/(tests?|third_party)/")
        try:
            compileall.compile_dir(library, quiet=2, workers=0, rx=left_out)
        except OSError:
            compileall.compile_dir(library, quiet=2, rx=left_out)
    shutil.rmtree(fonts, ignore_errors=True)
    os.environ["MPLCONFIGDIR"] = fonts
    try:
        import matplotlib.font_manager
    except ImportError:
        pass
    if not is_compiled:
        compiled.write("done")
    os.utime(mark)
"""
_IDLE_PRIORITY: Final = 19
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"


def python(config: settings.Settings) -> pathlib.Path:
    """Return the kernels' Python.

    Raises:
        KernelStartError: `ensure` has not built it.
    """
    if config.kernels.python is not None:
        return config.kernels.python
    executable = _executable(_resolve_link(_environment_path(config)))
    if not executable.exists():
        raise errors.KernelStartError(host_words.no_kernel_python(_environment_path(config)))
    return executable


@contextlib.contextmanager
def lock_environment(config: settings.Settings) -> Iterator[pathlib.Path]:
    """Lock the kernels' environment against removal, and yield its Python.

    Raises:
        KernelStartError: `ensure` has not built it.
    """
    executable = python(config)
    if config.kernels.python is not None:
        yield executable
        return
    while True:
        descriptor = os.open(executable.parents[1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Before the lock, the link may have been switched, and this environment removed.
            locked_executable, executable = executable, python(config)
            if executable == locked_executable:
                yield executable
                return
        finally:
            os.close(descriptor)


def name(config: settings.Settings) -> str:
    """Return the unique directory name of the current environment."""
    return _resolve_link(_environment_path(config)).name


def problem(config: settings.Settings) -> str:
    """Return why the environment does not match the locks; empty if it does."""
    environment = _environment_path(config)
    expected_state = _expected_state(_read_groups(environment))
    if config.kernels.python is not None or _is_complete(environment, expected_state):
        return ""
    return (
        _read_failure(_build_directory(environment, expected_state))
        or host_words.LIBRARIES_OUTDATED
    )


def ensure(config: settings.Settings, report: Callable[[str], object]) -> None:
    """Build the kernels' environment if it is missing or older than the locks.

    A background process, which outlives this one, compiles the modules; if it is killed, the next
    start compiles again. If building fails, the former environment is used.

    Raises:
        KernelStartError: building failed, and there is no former environment; the message says why.
    """
    if config.kernels.python is not None:
        return
    environment = _environment_path(config)
    has_former = _executable(environment).exists()
    if has_former and not os.access(environment.parent, os.W_OK):
        return
    expected_state = _expected_state(_read_groups(environment))
    reason = has_former and _read_failure(
        _build_directory(environment, expected_state), _RETRY_SECONDS
    )
    try:
        if not reason:
            _install_if_needed(environment, expected_state, report)
            if not _is_compiled(_resolve_link(environment)):
                _compile(_resolve_link(environment), _IDLE_PRIORITY)
    except errors.KernelStartError as error:
        if not has_former:
            raise
        reason = str(error)
    if reason:
        _log.warning("%s Until then, code runs with the former ones.", reason)
    else:
        _remove_leftovers(environment)


def install(
    config: settings.Settings, report: Callable[[str], object], *, groups: Collection[str]
) -> None:
    """Build the kernels' environment with `groups` in addition to those that it has.

    Raises:
        KernelStartError: building failed; the message says why.
    """
    environment = _environment_path(config)
    installed_groups = {*groups, *_read_groups(environment)}
    expected_state = _expected_state([group for group in GROUPS if group in installed_groups])
    if _is_complete(environment, expected_state):
        report(host_words.libraries_present(_count_packages(expected_state["groups"])))
    _install_if_needed(environment, expected_state, report)
    _compile(_resolve_link(environment)).wait()
    _remove_leftovers(environment)


def _install_if_needed(
    environment: pathlib.Path, expected_state: Mapping[str, Any], report: Callable[[str], object]
) -> None:
    """Build an environment beside the former one and switch to it, unless it is in place.

    Raises:
        KernelStartError: building failed; the message says why.
    """
    if _is_complete(environment, expected_state):
        return
    try:
        environment.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        with open(f"{environment}.lock", "w") as build_lock:
            fcntl.flock(build_lock, fcntl.LOCK_EX)
            if _is_complete(environment, expected_state):
                return
            build_directory = _build_directory(environment, expected_state)
            if not _is_complete(build_directory, expected_state):
                _build(build_directory, expected_state, build_lock.fileno(), report)
            _switch(environment, build_directory)
    except OSError as error:
        raise errors.KernelStartError(host_words.libraries_failed(error)) from error


def _build(
    directory: pathlib.Path,
    expected_state: Mapping[str, Any],
    build_lock: int,
    report: Callable[[str], object],
) -> None:
    """Create an environment with the packages of some groups' locks.

    Raises:
        KernelStartError: it failed; the message says why, and is stored in the directory.
    """
    import venv

    groups = expected_state["groups"]
    report(host_words.installing_libraries(_count_packages(groups)))
    started_at = time.monotonic()
    # A copied Python may have its own AppArmor profile, so it is copied again.
    uses_symlinks = sys.prefix == sys.base_prefix or os.path.islink(sys.executable)
    venv.EnvBuilder(clear=True, symlinks=uses_symlinks).create(directory)
    try:
        _install_packages(directory, groups, build_lock)
    except errors.KernelStartError as error:
        (directory / _FAILURE_FILE_NAME).write_text(str(error))
        report(host_words.LIBRARIES_FAILED)
        raise
    # Tests are a twentieth of the libraries' size on disk.
    for tests in list((directory / "lib").rglob("tests")):
        shutil.rmtree(tests, ignore_errors=True)
    (directory / STATE_FILE_NAME).write_text(json.dumps(expected_state))
    report(host_words.libraries_installed(time.monotonic() - started_at))


def _switch(environment: pathlib.Path, directory: pathlib.Path) -> None:
    """Switch the link to a directory beside it, atomically."""
    link = environment.with_name(f"{environment.name}.new")
    link.unlink(missing_ok=True)
    link.symlink_to(directory.name)
    link.replace(environment)


def _remove_leftovers(environment: pathlib.Path) -> None:
    """Remove unused and incomplete environments."""
    candidates = environment.parent.glob(f"{environment.name}-*")
    leftovers = [
        path
        for path in candidates
        if _BUILT_NAME_PATTERN.fullmatch(path.name) and path != _resolve_link(environment)
    ]
    if not leftovers:
        return
    try:
        with open(f"{environment}.lock", "w") as build_lock:
            fcntl.flock(build_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for directory in leftovers:
                _remove_unused(directory)
    except OSError as error:
        # The next start tries again.
        _log.info("former libraries for code are left behind: %s", error)


def _remove_unused(directory: pathlib.Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    except BlockingIOError:
        _log.info("%s is still in use", directory)
    finally:
        os.close(descriptor)


def _compile(environment: pathlib.Path, niceness: int = 0) -> subprocess.Popen[bytes]:
    """Start to write bytecode and the list of fonts: kernels can read, but not write them."""
    command = [
        str(_executable(environment)),
        "-I",
        "-c",
        _COMPILE_CODE,
        str(_GUEST_DIRECTORY),
        str(environment / "lib"),
    ]
    command += [
        str(environment / _COMPILED_FILE_NAME),
        str(environment / _FONTS_PATH),
        str(niceness),
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def listed_packages() -> frozenset[str]:
    """Return the names of all packages in the groups' lists, without dependencies."""
    return frozenset(name for group in GROUPS for name in _listed_names(group))


def absent_modules(prefix: pathlib.Path) -> dict[str, str]:
    """Return the group of each module that an environment lacks; empty if it was not built here."""
    if not _read_state(prefix):
        return {}
    missing_groups = [group for group in GROUPS if group not in _read_groups(prefix)]
    return {
        name.replace("-", "_"): group for group in missing_groups for name in _listed_names(group)
    }


def _environment_path(config: settings.Settings) -> pathlib.Path:
    path_beside_bot = pathlib.Path(sys.prefix, "kernels")
    has_own_prefix = sys.prefix != sys.base_prefix
    if has_own_prefix and (path_beside_bot.exists() or os.access(sys.prefix, os.W_OK)):
        return path_beside_bot
    return config.paths.data / "kernels"


def _resolve_link(environment: pathlib.Path) -> pathlib.Path:
    return (
        environment.parent / os.readlink(environment) if environment.is_symlink() else environment
    )


def _build_directory(environment: pathlib.Path, expected_state: Mapping[str, Any]) -> pathlib.Path:
    """Return the directory of the environment with an expected state."""
    digest = hashlib.sha256(json.dumps(expected_state).encode()).hexdigest()
    return environment.with_name(f"{environment.name}-{digest[:_DIGEST_DIGITS]}")


def _executable(environment: pathlib.Path) -> pathlib.Path:
    return environment / "bin" / "python"


def _is_complete(environment: pathlib.Path, expected_state: Mapping[str, Any]) -> bool:
    return _read_state(environment) == expected_state and _executable(environment).exists()


def _is_compiled(environment: pathlib.Path) -> bool:
    try:
        mark = (environment / _COMPILED_FILE_NAME).stat()
    except OSError:
        return False
    guest_changed_at = max(path.stat().st_mtime for path in _GUEST_DIRECTORY.glob("*.py"))
    return (
        mark.st_size > 0
        and mark.st_mtime > guest_changed_at
        and (_GUEST_DIRECTORY / "__pycache__").exists()
    )


def _read_failure(directory: pathlib.Path, seconds: float = math.inf) -> str:
    """Return why building failed within the last seconds; empty if it did not."""
    file = directory / _FAILURE_FILE_NAME
    try:
        return file.read_text() if time.time() - file.stat().st_mtime < seconds else ""
    except OSError:
        return ""


def _read_state(environment: pathlib.Path) -> dict[str, object]:
    try:
        return dict(json.loads((environment / STATE_FILE_NAME).read_text()))
    except (OSError, ValueError):
        return {}


def _read_groups(environment: pathlib.Path) -> list[str]:
    groups = _read_state(environment).get("groups")
    return [group for group in groups if group in GROUPS] if isinstance(groups, list) else ["core"]


def _expected_state(groups: Collection[str]) -> dict[str, Any]:
    locks = b"".join(_lock_file(group).read_bytes() for group in groups)
    return {
        "groups": list(groups),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "locks": hashlib.sha256(locks).hexdigest(),
    }


def _lock_file(group: str) -> pathlib.Path:
    return _LOCKS_DIRECTORY / f"{group}.lock"


def _listed_names(group: str) -> list[str]:
    """Return the names of the packages in a group's list."""
    return [
        match[0].lower()
        for match in map(
            _PACKAGE_NAME_PATTERN.match, _read_entries(_LOCKS_DIRECTORY / f"{group}.in")
        )
        if match
    ]


def _read_entries(path: pathlib.Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and line[0] not in " #"]


def _count_packages(groups: Collection[str]) -> int:
    return len({line for group in groups for line in _read_entries(_lock_file(group))})


def _install_packages(environment: pathlib.Path, groups: Collection[str], build_lock: int) -> None:
    """Run uv, with the index and the cache that it is configured with.

    uv inherits the lock `build_lock`: if this process is killed, uv still writes, and keeps the
    lock.

    Raises:
        KernelStartError: it failed; the sentence says why.
    """
    command = [os.path.join(sysconfig.get_path("scripts"), "uv"), "pip", "sync", "--quiet"]
    command += [
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--python",
        str(_executable(environment)),
    ]
    if os.path.exists(_CERTIFICATES):
        command.append("--system-certs")
    completed = subprocess.run(
        [*command, *(str(_lock_file(group)) for group in groups)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[build_lock],
        check=False,
    )
    if completed.returncode:
        raise errors.KernelStartError(
            host_words.libraries_failed(" ".join(completed.stderr.split()).rstrip("."))
        )
