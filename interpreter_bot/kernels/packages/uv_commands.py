"""uv, which resolves and unpacks packages in a confined process without secrets.

Only wheels are used, so no code of a package runs during installation.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import pathlib
import re
import signal
import sysconfig
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from packaging import requirements

from interpreter_bot import cancellation, errors, settings
from interpreter_bot.guest import program_walls
from interpreter_bot.kernels import admissions
from interpreter_bot.kernels.files import directory_contents, workspace_io
from interpreter_bot.kernels.packages import lock_files
from interpreter_bot.kernels.provisioning import python_environments
from interpreter_bot.wording import package_words

_log = logging.getLogger(__name__)

# Paths that uv may read besides its own files and the kernels' Python: libraries, name resolution
# and certificates.
_READABLE_SYSTEM_PATHS: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sys/fs/cgroup",
    "/etc/ld.so.cache",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/alternatives",
    "/etc/os-release",
    "/etc/localtime",
    "/run/systemd/resolve",
)
_NETWORK_VARIABLES: Final = (*settings.CERTIFICATE_VARIABLES, *settings.PROXY_VARIABLES)
_COMMON_OPTIONS: Final = (
    "--no-config",
    "--no-progress",
    "--color",
    "never",
    "--no-python-downloads",
)
_MAX_PROCESSES: Final = 2
_INSTALL_SECONDS: Final = 300.0
_MAX_DATA_BYTES: Final = 2 * settings.GIB
_MAX_FILES: Final = 100_000
_MAX_CACHE_BYTES: Final = 512 * settings.MIB
_SIZE_CHECK_SECONDS: Final = 0.5
_FILE_TOO_LARGE: Final = f"(os error {errno.EFBIG})"
_MAX_SENTENCE_CHARACTERS: Final = 800
_REASON_PATTERNS: Final = (
    re.compile(r"\bBecause .*", re.DOTALL),
    re.compile(r"(?<=error:).*", re.DOTALL),
    re.compile(r".*", re.DOTALL),
)
# Patterns of uv's errors about an index, each with the sentence for people.
_INDEX_ERRORS: Final = (
    (
        re.compile(r"invalid peer certificate|certificate verify failed"),
        package_words.UNTRUSTED,
    ),
    (
        re.compile(r"tunnel error|\b407\b|proxy authorization"),
        package_words.NO_PROXY,
    ),
    (
        re.compile(r"\b401 Unauthorized|\b403 Forbidden"),
        package_words.REFUSED,
    ),
    (
        re.compile(r"dns error|lookup address"),
        package_words.UNKNOWN_HOST,
    ),
    (
        re.compile(r"tcp connect error|Permission denied \(os error 13\)"),
        package_words.UNREACHABLE,
    ),
    (
        re.compile(r"Failed to fetch|Request failed|error sending request|timed out"),
        package_words.INDEX_DOWN,
    ),
)
_URL_USER_PATTERN: Final = re.compile(r"//[^/@\s]+@")
_WEB_PORTS: Final = frozenset({53, 80, 443})
# Paths of certificates in distributions; if none exists, uv uses its own certificates.
_CERTIFICATES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class UvFailedError(Exception):
    """uv failed; the message is its output."""


class Uv:
    """uv with one index, for one Python."""

    def __init__(
        self,
        config: settings.PackageIndex,
        environment: python_environments.Environment,
        directory: pathlib.Path,
    ) -> None:
        """Start nothing yet; the cache of the index is kept in `directory`."""
        self._config = config
        self._environment = environment
        self._directory = directory
        self._install_admissions = admissions.Admissions(_MAX_PROCESSES)
        # Packages that sessions already had do not wait behind new installations.
        self._restore_admissions = admissions.Admissions(_MAX_PROCESSES)
        self._resolving_count = 0

    async def resolve(
        self,
        requested_packages: Sequence[requirements.Requirement],
        installed_versions: Mapping[str, str],
        staging: pathlib.Path,
        person: str | None = None,
    ) -> lock_files.Lock:
        """Find the packages to add to the installed ones, which stay as they are.

        `staging` is empty; `person` is None for the packages of a channel.

        Raises:
            PackagesError: it is not possible; the message says why.
        """
        constraints_file, lock_file = staging / "installed.txt", staging / "pylock.toml"
        constraints_file.write_text(
            "".join(f"{name}=={version}\n" for name, version in installed_versions.items())
        )
        requirements_file = staging / "requested.in"
        requirements_file.write_text(
            "".join(f"{requirement}\n" for requirement in requested_packages)
        )
        options = ["--constraints", str(constraints_file), "--output-file", str(lock_file)]
        for name in installed_versions:
            options += ["--no-emit-package", name]
        if self._config.cooldown_days:
            options += ["--exclude-newer", f"{self._config.cooldown_days} days"]
            for name in (*installed_versions, *self._config.own):
                options += ["--exclude-newer-package", f"{name}=false"]
        cache = self._directory / "cache"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._resolving_count += 1
        try:
            await self._run(
                [
                    "pip",
                    "compile",
                    str(requirements_file),
                    "--format",
                    "pylock.toml",
                    "--no-header",
                    *options,
                ],
                staging=staging,
                cache=cache,
                person=person,
            )
        finally:
            self._resolving_count -= 1
            if not self._resolving_count:
                await self._trim_cache(cache, staging)
        return lock_files.read(lock_file.read_text("utf-8"))

    async def _trim_cache(self, cache: pathlib.Path, staging: pathlib.Path) -> None:
        """Delete the cache of the index once it is large and unused."""
        with contextlib.suppress(FileNotFoundError):  # Another task has moved the cache.
            usage = await cancellation.in_thread(_measure, cache, _MAX_CACHE_BYTES)
            if usage.is_over_limit and not self._resolving_count:
                # The next resolution starts a new cache; this one is deleted with `staging`.
                cache.rename(staging / "former")  # noqa: ASYNC240 - no file is moved.

    async def unpack(
        self,
        lock: lock_files.Lock,
        target: pathlib.Path,
        staging: pathlib.Path,
        person: str | None = None,
    ) -> None:
        """Download the wheels of a lock, check their hashes and unpack them into `target`.

        `target` is in `staging`; `person` is None if a session already had the packages.

        Raises:
            PackagesError: it is not possible; the message says why.
        """
        requirements_file = staging / "lock.txt"
        requirements_file.write_text(lock_files.format_requirements(lock))
        command = [
            "pip",
            "install",
            "--requirements",
            str(requirements_file),
            "--target",
            str(target),
        ]
        options = ["--no-deps", "--require-hashes", "--link-mode", "hardlink", "--quiet"]
        # Use a separate cache, so that all written files are in one directory, which is measured
        # and deleted.
        uv = self._run(
            [*command, *options], staging=staging, cache=staging / "cache", person=person
        )
        await cancellation.run_until(uv, self._watch_size(staging), name="uv")

    async def _watch_size(self, staging: pathlib.Path) -> None:
        """Raise PackagesError once an installation has become too large."""
        while True:
            await asyncio.sleep(_SIZE_CHECK_SECONDS)
            await asyncio.to_thread(self.check_size, staging)

    def check_size(self, directory: pathlib.Path) -> int:
        """Return the disk usage of unpacked files; blocks.

        Raises:
            PackagesError: it exceeds the limit.
        """
        usage = _measure(directory, self._config.unpacked_bytes)
        if usage.is_over_limit:
            raise errors.PackagesError(package_words.UNPACKED_TOO_LARGE)
        return usage.bytes

    async def _run(
        self,
        arguments: Collection[str],
        *,
        staging: pathlib.Path,
        cache: pathlib.Path,
        person: str | None,
    ) -> None:
        config, python = self._config, self._environment.executable
        program = os.path.join(sysconfig.get_path("scripts"), "uv")
        command = [program, *arguments, *_COMMON_OPTIONS, "--python", python]
        command += ["--only-binary", ":all:", "--default-index", config.url]
        if any(map(os.path.exists, _CERTIFICATES)):
            command.append("--system-certs")
        network_variables = {
            name: os.environ[name] for name in _NETWORK_VARIABLES if os.environ.get(name)
        }
        proxies = [
            network_variables[name]
            for name in settings.PROXY_VARIABLES
            if name in network_variables
        ]
        readable_paths = [*_READABLE_SYSTEM_PATHS, *self._environment.readable_paths, program]
        readable_paths += filter(None, [str(config.netrc_file or "")])
        readable_paths += (
            network_variables[name]
            for name in settings.CERTIFICATE_VARIABLES
            if name in network_variables
        )
        walls = program_walls.LandlockWalls(
            readable_paths=readable_paths,
            writable_paths=[str(staging), str(cache)],
            # An index may link to any address, so only the web's ports and the index's are open.
            ports=sorted(_allowed_ports([config.url, *proxies])),
            rlimits={
                "FSIZE": config.unpacked_bytes,
                "CPU": int(_INSTALL_SECONDS) + 1,
                "DATA": _MAX_DATA_BYTES,
                "CORE": 0,
            },
        )
        variables = {
            "HOME": str(staging),
            "TMPDIR": str(staging),
            "PATH": "/usr/bin:/bin",
            "UV_CACHE_DIR": str(cache),
            # Few retries, because a person waits.
            "UV_HTTP_RETRIES": "1",
            **network_variables,
        }
        if config.netrc_file is not None:
            variables["NETRC"] = str(config.netrc_file)
        queue = self._restore_admissions if person is None else self._install_admissions
        async with queue.place(staging.name, person or ""):
            process = await asyncio.create_subprocess_exec(
                *walls.command(),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=variables,
                cwd=staging,
                umask=0o022,
                start_new_session=True,
            )
            output = await self._wait_for_output(process)
        if process.returncode:
            output = _URL_USER_PATTERN.sub("//…@", output.replace(str(staging), "…"))
            _log.warning("uv ended with %s: %s", process.returncode, output)
            raise errors.PackagesError(_explain_failure(output)) from UvFailedError(output)

    async def _wait_for_output(self, process: asyncio.subprocess.Process) -> str:
        """Return the output of a process once it has ended; kill it if that takes too long."""
        try:
            async with asyncio.timeout(_INSTALL_SECONDS):
                _, output = await process.communicate()
                return output.decode("utf-8", "replace")
        except TimeoutError as error:
            raise errors.PackagesError(package_words.TOO_SLOW) from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _measure(directory: pathlib.Path, max_bytes: int) -> directory_contents.DirectoryUsage:
    """Measure a directory up to a limit; blocks."""
    with workspace_io.root_descriptor(directory) as root:
        return directory_contents.measure(root, max_bytes=max_bytes, max_files=_MAX_FILES)


def _allowed_ports(addresses: Collection[str]) -> set[int]:
    """Return the TCP ports of the web, and those of addresses."""
    ports = set(_WEB_PORTS)
    for address in addresses:
        with contextlib.suppress(ValueError):
            url = address if "//" in address else f"//{address}"
            ports.add(urllib.parse.urlsplit(url).port or 443)
    return ports


def _explain_failure(output: str) -> str:
    """Return why uv failed, as a sentence for people."""
    if _FILE_TOO_LARGE in output:
        return package_words.UNPACKED_TOO_LARGE
    for pattern, sentence in _INDEX_ERRORS:
        if pattern.search(output):
            return sentence
    match = next(filter(None, (pattern.search(output) for pattern in _REASON_PATTERNS)))
    text = " ".join(match[0].split())
    return text[:_MAX_SENTENCE_CHARACTERS] or package_words.NOT_INSTALLED
