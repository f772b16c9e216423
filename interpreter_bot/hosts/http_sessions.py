"""HTTP sessions of a bot with a trusted host process, and the host's status.

A host receives all code, files and answers. The directory of its socket may be in a directory of
all users, such as /tmp, where another user could create it first. So each connection is checked for
the user of the process that listens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import socket
import stat
from typing import Any, Final

import aiohttp
import yarl
from aiohttp import abc, connector, tracing

from interpreter_bot import errors
from interpreter_bot.hosts import host_addresses, host_sockets, messages
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_BASE_URL: Final = "http://host"
# A host answers a status request at once, from memory.
_MAX_STATUS_SECONDS: Final = 10.0
# A machine without power closes no connection, and streamed files have no time limit.
_KEEPALIVE_OPTIONS: Final = (
    *((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)),
    *((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)),
)


class OtherProtocolError(errors.HostUnusableError):
    """The Python host is of another release, which this bot does not understand."""


def trusted_uids(path: pathlib.Path) -> set[int]:
    """Return the users who may listen at a socket: us, root, and the runtime directory's owner.

    That owner counts only if other users could not have created the directory.
    """
    uids = {0, os.geteuid()}
    runtime = path.parent.parent
    with contextlib.suppress(OSError):
        if not runtime.parent.stat().st_mode & stat.S_IWOTH:
            uids.add(runtime.lstat().st_uid)
    return uids


def _check_owner(peer: socket.socket, path: pathlib.Path) -> None:
    """Check the user who listens at a socket to which `peer` is connected.

    Raises:
        HostUnusableError: another user's process listens.
    """
    uid = host_sockets.peer_uid(peer)
    if uid not in trusted_uids(path):
        _log.warning("user %d listens at %s", uid, path)
        raise errors.HostUnusableError(host_words.HOST_OF_OTHER_USER)


class Connector(aiohttp.UnixConnector):
    """Connector that checks the user who listens at a socket.

    Attributes:
        has_checked: whether any connection was checked.
    """

    has_checked = False

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(str(path), limit=0)
        self._socket_path = path

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the library's.
    ) -> connector.Connection:
        """Return a connection after checking who listens, before anything is sent.

        Raises:
            HostUnusableError: another user's process listens.
        """
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        try:
            if transport is None:
                raise errors.HostUnusableError(host_words.HOST_OF_OTHER_USER)
            _check_owner(transport.get_extra_info("socket"), self._socket_path)
            self.has_checked = True
        except errors.HostUnusableError:
            connection.close()
            raise
        return connection


def _keepalive_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    new_socket = socket.socket(*info[:3])
    for option in _KEEPALIVE_OPTIONS:
        new_socket.setsockopt(*option)
    return new_socket


class _Resolver(abc.AbstractResolver):
    """Resolves every name to one address, because a name may have addresses of several hosts."""

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
    """HTTP session with a host whose user is checked; an async context, or call `close`."""

    def __init__(self, address: host_addresses.Address) -> None:
        timeout = aiohttp.ClientTimeout(total=_MAX_STATUS_SECONDS)
        self._credentials: host_addresses.Credentials | None = None
        self._checked_connector: Connector | None = None
        if isinstance(address, pathlib.Path):
            self._checked_connector = Connector(address)
            self._session = aiohttp.ClientSession(
                _BASE_URL, connector=self._checked_connector, timeout=timeout
            )
            return
        assert address.credentials is not None, "a bot's address has credentials"  # noqa: S101
        self._credentials = address.credentials
        base_url = yarl.URL.build(scheme="https", host=address.name, port=address.port)
        resolver = _Resolver(address.ip) if address.ip else None
        connector = aiohttp.TCPConnector(
            limit=0, resolver=resolver, use_dns_cache=False, socket_factory=_keepalive_socket
        )
        self._session = aiohttp.ClientSession(base_url, connector=connector, timeout=timeout)

    async def request(self, method: str, path: str, **options: Any) -> aiohttp.ClientResponse:
        response = await self._session.request(method, path, **options, **self._tls_options)
        if self._checked_connector is not None and not self._checked_connector.has_checked:
            # The first request of a session has no secrets, so checking after it is safe.
            response.close()
            raise errors.HostUnusableError(host_words.OWNER_UNKNOWN)
        return response

    async def ws_connect(self, path: str, **options: Any) -> Any:  # noqa: ANN401
        return await self._session.ws_connect(path, **options, **self._tls_options)

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> HostSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _tls_options(self) -> dict[str, Any]:
        """Options with the present TLS context."""
        return {} if self._credentials is None else {"ssl": self._credentials.context()}


async def read_status(session: HostSession, address: host_addresses.Address) -> messages.HostStatus:
    """Read the status of a host.

    Raises:
        HostUnusableError: it does not answer, has another protocol, or belongs to another user.
        KernelError: there is no host.
    """
    try:
        async with await session.request("GET", "/v1/host") as response:
            response.raise_for_status()
            document = await response.json()
        status = messages.from_json(messages.HostStatus, document)
    except TimeoutError as error:
        raise errors.HostUnusableError(host_words.NOT_ANSWERING) from error
    except (aiohttp.ClientError, OSError) as error:
        # Caught before ValueError, which some certificate errors are as well.
        if isinstance(address, host_addresses.TlsAddress) and (
            message := _tls_error(error, address)
        ):
            raise errors.HostUnusableError(message) from error
        raise errors.KernelError(host_words.UNREACHABLE) from error
    except (ValueError, RecursionError) as error:
        raise OtherProtocolError(host_words.HOST_OF_OTHER_RELEASE) from error
    if status.protocol_version != messages.PROTOCOL_VERSION:
        raise OtherProtocolError(host_words.HOST_OF_OTHER_RELEASE)
    return status


def _tls_error(error: Exception, address: host_addresses.TlsAddress) -> str:
    """Return a sentence on what is wrong with TLS; empty if the error has another cause."""
    if not isinstance(error, aiohttp.ServerDisconnectedError):
        return host_addresses.tls_error(error, address)
    # A host that refuses our certificate just disconnects, as asyncio sends no TLS alert. The
    # import is here because only this case needs it.
    from interpreter_bot.hosts import certificate_authorities

    assert address.credentials is not None, "a bot's address has credentials"  # noqa: S101
    reason = (
        certificate_authorities.check_certificate(address.credentials.directory)
        or host_words.NOT_TRUSTED
    )
    return host_words.connection_closed(address, reason)
