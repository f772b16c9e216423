"""What a host process says of itself to whoever asks, and how it is asked."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Final

import aiohttp

from interpreter_bot import errors
from interpreter_bot.hosts import host_messages, socket_owners

UNREACHABLE: Final = "The process that keeps the Python kernels cannot be reached right now."
_ADDRESS: Final = "http://host"
_OTHER_PROTOCOL: Final = (
    "The process that keeps the Python kernels is of a release that this bot does not understand;"
    " `interpreter-bot host drain` ends it."
)
_STUCK: Final = "The process that keeps the Python kernels does not answer."
# It is answered out of memory.
_STATUS_SECONDS: Final = 10.0


class OtherProtocolError(errors.HostUnusableError):
    """The process that keeps the Python kernels is of a release that is not understood."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostStatus:
    """What a host says of itself.

    Attributes:
        id: of its process: another one after each start.
        protocol: see `host_messages.PROTOCOL`.
        release: of the program.
        pid: of its process.
        fingerprint: of its settings, as `settings.Settings.kernel_fingerprint` says.
        private: paths that no code in its kernels may see.
        is_sandboxed: whether its kernels are.
        keeps_variables: whether those of idle sessions are saved.
        packages: that code may import, with their versions.
        is_draining: it takes no more, and ends.
        is_lingering: it ends by itself when no bot needs it.
        bots: that are connected and want to hear of kernels; commands are none.
        kernels: that live.
        executions: that run.
    """

    id: str
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


def open_session(path: pathlib.Path) -> aiohttp.ClientSession:
    """Return a session with the host behind a socket, if it is no stranger's; to be closed."""
    timeout = aiohttp.ClientTimeout(total=_STATUS_SECONDS)
    connector = socket_owners.Connector(path)
    return aiohttp.ClientSession(_ADDRESS, connector=connector, timeout=timeout)


async def read_status(session: aiohttp.ClientSession) -> HostStatus:
    """Ask a host what it is.

    Raises:
        HostUnusableError: it does not answer, or is of another protocol, or a stranger's.
        KernelError: there is none.
    """
    try:
        async with session.get("/v1/host") as response:
            response.raise_for_status()
            said = await response.json()
        status = host_messages.read(HostStatus, said)
    except TimeoutError as error:
        raise errors.HostUnusableError(_STUCK) from error
    except ValueError as error:
        raise OtherProtocolError(_OTHER_PROTOCOL) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.KernelError(UNREACHABLE) from error
    if status.protocol != host_messages.PROTOCOL:
        raise OtherProtocolError(_OTHER_PROTOCOL)
    return status
