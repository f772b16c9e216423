"""Status of a host process, and HTTP sessions to read it."""

from __future__ import annotations

import dataclasses
import pathlib
import socket
from collections.abc import Iterable
from typing import Any, Final

import aiohttp
import yarl
from aiohttp import abc

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_addresses, host_messages, socket_owners
from interpreter_bot.wording import host_words

_ADDRESS: Final = "http://host"
# A host answers a status request at once, from memory.
_STATUS_SECONDS: Final = 10.0
# A machine that loses power closes no connection, and streamed files have no time limit.
_KEEPALIVE_OPTIONS: Final = (
    *((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)),
    *((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)),
)


class OtherProtocolError(errors.HostUnusableError):
    """The process that keeps the Python kernels is of a release that is not understood."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostStatus:
    """Status of a host.

    Attributes:
        id: of its process, new after each start.
        data_id: of its data directory, the same after each start.
        has_doors: whether the bot can listen where code of its kernels connects.
        data_file: digest of machine and inode of the data id's file; differs for a copy.
        protocol: see `host_messages.PROTOCOL`.
        release: of the program.
        pid: of its process.
        fingerprint: see `host_processes.fingerprint`.
        private: paths that code in its kernels may not see.
        is_sandboxed: whether its kernels are sandboxed.
        sandbox_level: of its kernels; empty from releases that do not send it.
        keeps_variables: whether variables of idle sessions are saved.
        packages: importable packages with their versions.
        is_draining: whether it takes no new sessions and ends.
        is_lingering: whether it ends by itself when no bot uses it.
        bots: number of connected bots, without commands.
        kernels: number of live kernels.
        executions: number of running executions.
        has_store: whether its sessions can move by a store that machines share.
        free_bytes: free memory for sessions.
        memory_bytes: memory of the host and its sessions together.
    """

    id: str
    data_id: str
    protocol: int
    release: str
    pid: int
    fingerprint: str
    private: tuple[str, ...]
    is_sandboxed: bool
    keeps_variables: bool
    packages: dict[str, str]
    is_draining: bool
    is_lingering: bool
    bots: int
    kernels: int
    executions: int
    data_file: str = ""
    has_doors: bool = False
    has_store: bool = False
    free_bytes: int = 0
    memory_bytes: int = 0
    sandbox_level: str = ""

    @property
    def level(self) -> values.SandboxLevel:
        """Sandbox level of its kernels."""
        if self.sandbox_level in set(values.SandboxLevel):
            return values.SandboxLevel(self.sandbox_level)
        return values.SandboxLevel.STANDARD if self.is_sandboxed else values.SandboxLevel.NONE

    def check_beside(
        self, others: Iterable[HostStatus], address: str, *, needs_doors: bool
    ) -> None:
        """Refuse a host of a fleet that lacks doors, or whose data directory is a copy.

        Raises:
            HostUnusableError: the sentence says what to do.
        """
        if needs_doors and not self.has_doors:
            raise errors.HostUnusableError(host_words.without_doors(address))
        for other in others:
            # A directory may have several hosts during an upgrade, but placements name it by its
            # id, so two directories must not share one.
            if other.data_id == self.data_id and other.data_file != self.data_file:
                raise errors.HostUnusableError(host_words.copied_directory(address))


def _keepalive_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    new_socket = socket.socket(*info[:3])
    for option in _KEEPALIVE_OPTIONS:
        new_socket.setsockopt(*option)
    return new_socket


class _Resolver(abc.AbstractResolver):
    """Resolves every name to one fixed address, as a name may lead to several hosts."""

    def __init__(self, ip: str) -> None:
        self._ip = ip

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[abc.ResolveResult]:
        family = socket.AF_INET6 if ":" in self._ip else socket.AF_INET
        flags = socket.AI_NUMERICHOST
        return [
            abc.ResolveResult(
                hostname=host, host=self._ip, port=port, family=family, proto=0, flags=flags
            )
        ]

    async def close(self) -> None:
        """Keep nothing open."""


class HostSession:
    """HTTP session with a host whose owner is checked; an async context, or call `close`."""

    def __init__(self, address: host_addresses.Address) -> None:
        timeout = aiohttp.ClientTimeout(total=_STATUS_SECONDS)
        self._credentials: host_addresses.Credentials | None = None
        self._checked_connector: socket_owners.Connector | None = None
        if isinstance(address, pathlib.Path):
            self._checked_connector = socket_owners.Connector(address)
            self._session = aiohttp.ClientSession(
                _ADDRESS, connector=self._checked_connector, timeout=timeout
            )
            return
        assert address.credentials is not None, "whoever connects has them"  # noqa: S101
        self._credentials = address.credentials
        base = yarl.URL.build(scheme="https", host=address.name, port=address.port)
        resolver = _Resolver(address.ip) if address.ip else None
        connector = aiohttp.TCPConnector(
            limit=0, resolver=resolver, use_dns_cache=False, socket_factory=_keepalive_socket
        )
        self._session = aiohttp.ClientSession(base, connector=connector, timeout=timeout)

    async def request(self, method: str, path: str, **options: Any) -> aiohttp.ClientResponse:
        """Begin a request; see aiohttp."""
        response = await self._session.request(method, path, **options, **self._tls)
        if self._checked_connector is not None and not self._checked_connector.has_checked:
            # The first request of a session has no secrets, so checking after it is safe.
            response.close()
            raise errors.HostUnusableError(host_words.OWNER_UNKNOWN)
        return response

    async def ws_connect(self, path: str, **options: Any) -> Any:  # noqa: ANN401
        """Open a websocket; see aiohttp."""
        return await self._session.ws_connect(path, **options, **self._tls)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def __aenter__(self) -> HostSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _tls(self) -> dict[str, Any]:
        """Options with the present TLS context."""
        return {} if self._credentials is None else {"ssl": self._credentials.context()}


async def read_status(session: HostSession, address: host_addresses.Address) -> HostStatus:
    """Read the status of a host.

    Raises:
        HostUnusableError: it does not answer, has another protocol, or belongs to another user.
        KernelError: there is none.
    """
    try:
        async with await session.request("GET", "/v1/host") as response:
            response.raise_for_status()
            document = await response.json()
        status = host_messages.read(HostStatus, document)
    except TimeoutError as error:
        raise errors.HostUnusableError(host_words.SILENT) from error
    except (aiohttp.ClientError, OSError) as error:
        # Caught before ValueError, which some certificate errors are as well.
        if isinstance(address, host_addresses.TlsAddress) and (
            message := _tls_error(error, address)
        ):
            raise errors.HostUnusableError(message) from error
        raise errors.KernelError(host_words.UNREACHABLE) from error
    except (ValueError, RecursionError) as error:
        raise OtherProtocolError(host_words.OTHER_RELEASE) from error
    if status.protocol != host_messages.PROTOCOL:
        raise OtherProtocolError(host_words.OTHER_RELEASE)
    return status


def _tls_error(error: Exception, address: host_addresses.TlsAddress) -> str:
    """Return a sentence on what is wrong with TLS; empty if the error has another cause."""
    if not isinstance(error, aiohttp.ServerDisconnectedError):
        return host_addresses.tls_error(error, address)
    # A host that refuses our certificate just disconnects, as asyncio sends no TLS alert. The
    # import is here because only this case needs it.
    from interpreter_bot.hosts import certificate_authorities

    assert address.credentials is not None, "whoever connects has them"  # noqa: S101
    reason = (
        certificate_authorities.check_certificate(address.credentials.directory)
        or host_words.NOT_TRUSTED
    )
    return host_words.closed(address, reason)
