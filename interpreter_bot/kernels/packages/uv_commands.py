"""uv, which resolves and unpacks packages: a process of its own behind walls, without secrets.

Only wheels are taken, so that nothing of a package runs: neither here nor in the bot.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import pathlib
import re
import signal
import sys
import sysconfig
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from packaging import requirements

from interpreter_bot import cancellation, errors, settings
from interpreter_bot.kernels import admissions
from interpreter_bot.kernels.files import directory_contents, workspace_io
from interpreter_bot.kernels.packages import lock_files
from interpreter_bot.kernels.provisioning import python_environments
from interpreter_bot.wording import package_words

_log = logging.getLogger(__name__)

_CONFINED: Final = ("-I", "-B", "-m", "interpreter_bot.guest.landlock_launcher")
# Beside its own files and the kernels' Python: libraries, and how names and certificates are found.
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys/fs/cgroup"),
    *("/etc/ld.so.cache", "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf"),
    *("/etc/gai.conf", "/etc/services", "/etc/ssl", "/etc/pki", "/etc/ca-certificates"),
    *("/etc/alternatives", "/etc/os-release", "/etc/localtime", "/run/systemd/resolve"),
)
_NETWORK: Final = (*settings.CERTIFICATE_VARIABLES, *settings.PROXY_VARIABLES)
_ALWAYS: Final = ("--no-config", "--no-progress", "--color", "never", "--no-python-downloads")
_PROCESSES: Final = 2
_DATA_BYTES: Final = 2 * settings.GIB
_MOST_FILES: Final = 100_000
_INDEX_BYTES: Final = 512 * settings.MIB
_WATCH_SECONDS: Final = 0.5
_FILE_TOO_LARGE: Final = f"(os error {errno.EFBIG})"
_SENTENCE_CHARACTERS: Final = 800
_SAY_WHY: Final = (
    re.compile(r"\bBecause .*", re.DOTALL),
    re.compile(r"(?<=error:).*", re.DOTALL),
    re.compile(r".*", re.DOTALL),
)
# Patterns of uv's errors about an index, each with the sentence for people.
_FAULTS: Final = (
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
_USER: Final = re.compile(r"//[^/@\s]+@")
_WEB_PORTS: Final = frozenset({53, 80, 443})
# Certificates as distributions keep them; without any, uv has its own.
_CERTIFICATES: Final = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"),
    *("/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"),
)


class UvFailedError(Exception):
    """uv ended with an error; the text is its own."""


class Uv:
    """uv with one index, for one Python."""

    def __init__(
        self,
        config: settings.PackageIndex,
        environment: python_environments.Environment,
        directory: pathlib.Path,
    ) -> None:
        """Start nothing.

        Args:
            config: the index, and what may be taken of it.
            environment: of the kernels, for whose Python it resolves.
            directory: for what it remembers of the index; created if missing.
        """
        self._config = config
        self._environment = environment
        self._directory = directory
        self._turns = admissions.Admissions(_PROCESSES)
        # What sessions had waits for nobody who wants something new.
        self._returns = admissions.Admissions(_PROCESSES)
        self._resolving = 0

    async def resolve(
        self,
        wanted: Sequence[requirements.Requirement],
        held: Mapping[str, str],
        staging: pathlib.Path,
        person: str | None = None,
    ) -> lock_files.Lock:
        """Find what has to be added to what is there, which stays as it is.

        Args:
            wanted: what is asked for.
            held: versions of what is there, by name.
            staging: an empty directory for it to work in.
            person: who wants it; None for what a channel always has.

        Raises:
            PackagesError: it is not possible; the sentence says why.
        """
        there, lock = staging / "held.txt", staging / "pylock.toml"
        there.write_text("".join(f"{name}=={version}\n" for name, version in held.items()))
        asked = staging / "wanted.in"
        asked.write_text("".join(f"{one}\n" for one in wanted))
        options = ["--constraints", str(there), "--output-file", str(lock)]
        for name in held:
            options += ["--no-emit-package", name]
        if self._config.cooldown_days:
            options += ["--exclude-newer", f"{self._config.cooldown_days} days"]
            for name in (*held, *self._config.own):
                options += ["--exclude-newer-package", f"{name}=false"]
        cache = self._directory / "cache"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._resolving += 1
        try:
            await self._run(
                ["pip", "compile", str(asked), "--format", "pylock.toml", "--no-header", *options],
                staging=staging,
                cache=cache,
                person=person,
            )
        finally:
            self._resolving -= 1
            if not self._resolving:
                await self._trim(cache, staging)
        return lock_files.read(lock.read_text("utf-8"))

    async def _trim(self, cache: pathlib.Path, staging: pathlib.Path) -> None:
        """Forget what is remembered of the index once that is much, and nobody uses it."""
        with contextlib.suppress(FileNotFoundError):  # Another one was quicker.
            usage = await cancellation.in_thread(_usage, cache, _INDEX_BYTES)
            if usage.is_over and not self._resolving:
                # Who resolves next begins with a new one; this one is deleted with `staging`.
                cache.rename(staging / "former")  # noqa: ASYNC240 - no file is moved.

    async def unpack(
        self,
        lock: lock_files.Lock,
        target: pathlib.Path,
        staging: pathlib.Path,
        person: str | None = None,
    ) -> None:
        """Download what a lock names, check the hashes and unpack it.

        Args:
            lock: what is wanted.
            target: the directory to fill, in `staging`.
            staging: a directory for it to work in.
            person: who wants it; None for what a session had already.

        Raises:
            PackagesError: it is not possible; the sentence says why.
        """
        named = staging / "lock.txt"
        named.write_text(lock_files.lines(lock))
        command = ["pip", "install", "--requirements", str(named), "--target", str(target)]
        options = ["--no-deps", "--require-hashes", "--link-mode", "hardlink", "--quiet"]
        # A cache of its own, so that all it writes is in one place that is measured and deleted.
        working = asyncio.create_task(
            self._run(
                [*command, *options], staging=staging, cache=staging / "cache", person=person
            ),
            name="uv",
        )
        watching = asyncio.create_task(self._watch(staging), name="size of an installation")
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            await working
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.wait({working, watching})

    async def _watch(self, staging: pathlib.Path) -> None:
        """Raise PackagesError once an installation has become too large."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            await asyncio.to_thread(self.check_size, staging)

    def check_size(self, directory: pathlib.Path) -> int:
        """Return what unpacked files take of the disk; blocks.

        Raises:
            PackagesError: too much.
        """
        usage = _usage(directory, self._config.unpacked_bytes)
        if usage.is_over:
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
        command = [program, *arguments, *_ALWAYS, "--python", python]
        command += ["--only-binary", ":all:", "--default-index", config.url]
        if any(map(os.path.exists, _CERTIFICATES)):
            command.append("--system-certs")
        network = {name: os.environ[name] for name in _NETWORK if os.environ.get(name)}
        proxies = [network[name] for name in settings.PROXY_VARIABLES if name in network]
        readable = [*_SYSTEM, *self._environment.readable, program]
        readable += filter(None, [str(config.netrc_file or "")])
        readable += (network[name] for name in settings.CERTIFICATE_VARIABLES if name in network)
        spec = {
            "readable": readable,
            "writable": [str(staging), str(cache)],
            # An index may name any address; what listens elsewhere is none of its business.
            "ports": sorted(_ports([config.url, *proxies])),
            "rlimits": {
                "FSIZE": config.unpacked_bytes,
                "CPU": int(config.build_seconds) + 1,
                "DATA": _DATA_BYTES,
                "CORE": 0,
            },
        }
        variables = {
            "HOME": str(staging),
            "TMPDIR": str(staging),
            "PATH": "/usr/bin:/bin",
            "UV_CACHE_DIR": str(cache),
            # A person waits for the installation.
            "UV_HTTP_RETRIES": "1",
            **network,
        }
        if config.netrc_file is not None:
            variables["NETRC"] = str(config.netrc_file)
        turns = self._returns if person is None else self._turns
        async with turns.place(staging.name, person or ""):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_CONFINED,
                json.dumps(spec),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=variables,
                cwd=staging,
                umask=0o022,
                start_new_session=True,
            )
            output = await self._ended(process)
        if process.returncode:
            output = _USER.sub("//…@", output.replace(str(staging), "…"))
            _log.warning("uv ended with %s: %s", process.returncode, output)
            raise errors.PackagesError(_sentence(output)) from UvFailedError(output)

    async def _ended(self, process: asyncio.subprocess.Process) -> str:
        """Wait for the end of a process, or bring it about; returns what it said."""
        try:
            async with asyncio.timeout(self._config.build_seconds):
                _, output = await process.communicate()
                return output.decode("utf-8", "replace")
        except TimeoutError as error:
            raise errors.PackagesError(package_words.TOO_SLOW) from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _usage(directory: pathlib.Path, max_bytes: int) -> directory_contents.DirectoryUsage:
    """Measure a directory up to a limit; blocks."""
    with workspace_io.opened(directory) as root:
        return directory_contents.measure(root, most_bytes=max_bytes, most_files=_MOST_FILES)


def _ports(addresses: Collection[str]) -> set[int]:
    """Return the TCP ports of addresses, such as of an index and of proxies, and of the web."""
    ports = set(_WEB_PORTS)
    for address in addresses:
        with contextlib.suppress(ValueError):
            whole = address if "//" in address else f"//{address}"
            ports.add(urllib.parse.urlsplit(whole).port or 443)
    return ports


def _sentence(told: str) -> str:
    """Return what uv says of a failure, as people can read it."""
    if _FILE_TOO_LARGE in told:
        return package_words.UNPACKED_TOO_LARGE
    for pattern, sentence in _FAULTS:
        if pattern.search(told):
            return sentence
    found = next(filter(None, (pattern.search(told) for pattern in _SAY_WHY)))
    text = " ".join(found[0].split())
    return text[:_SENTENCE_CHARACTERS] or package_words.NOT_INSTALLED
