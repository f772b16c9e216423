"""Addresses of hosts: a socket of this machine, or a name and port that speak TLS.

Over TLS both ends show a certificate of one small authority, and both check the other's: a host's
says by which names it may be reached, a bot's that it is a bot's. Files are read again when they
change, for the connections that are made from then on.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import re
import ssl
from collections.abc import Mapping
from typing import Final, TypeAlias

from interpreter_bot import errors

_log = logging.getLogger(__name__)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
# As Kubernetes, and what issues certificates there, names them.
_FILES: Final = (CERTIFICATE, KEY, AUTHORITY)
_ADDRESS: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")

_NO_FILE: Final = "{file} cannot be read: {reason}. `interpreter-bot host certificate` makes it."
_NO_PAIR: Final = "The key in {directory}/tls.key is not that of the certificate in tls.crt."
_NO_CERTIFICATES: Final = (
    "{directory} holds something else than a certificate, its key and an authority."
)
# Of OpenSSL, where a certificate is refused.
_VERIFY_MESSAGES: Final[Mapping[int, str]] = {
    9: "The certificate of the host at {address} is not valid yet; or a clock is wrong.",
    10: "The certificate of the host at {address} has expired.",
    62: "The certificate of the host at {address} is for another name.",
    64: "The certificate of the host at {address} is for another address.",
}
_NO_HOST: Final = "The certificate shown at {address} is not that of a host."
_OTHER_AUTHORITY: Final = (
    "The certificate of the host at {address} is not of the authority that this bot trusts."
)
_NO_TLS: Final = "What listens at {address} does not speak TLS as a host does."
_WRONG_PURPOSE: Final = 26


class Credentials:
    """Certificate, key and trusted authority of one end, in a directory. Blocks shortly.

    Attributes:
        directory: of them.
    """

    def __init__(self, directory: pathlib.Path, *, is_host: bool) -> None:
        """Read the files.

        Args:
            directory: of `tls.crt`, `tls.key` and `ca.crt`.
            is_host: whether this is the end that listens.

        Raises:
            SettingsError: one is missing, or does not fit; the sentence says which.
        """
        self.directory = directory
        self._is_host = is_host
        self._loaded_state = self._read_state()
        self._context = self._build_context()

    def context(self) -> ssl.SSLContext:
        """Return what the next connection uses; files that do not fit (yet) change nothing."""
        try:
            state = self._read_state()
            if state != self._loaded_state:
                self._context = self._build_context()
                self._loaded_state = state
        except errors.SettingsError as error:
            _log.warning("certificates were changed, and cannot be used: %s", error)
        return self._context

    def _read_state(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(map(_file_state, (self.directory / name for name in _FILES)))

    def _build_context(self) -> ssl.SSLContext:
        certificate, key, authority = (self.directory / name for name in _FILES)
        protocol = ssl.PROTOCOL_TLS_SERVER if self._is_host else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(certificate, key)
            context.load_verify_locations(authority)
        except ssl.SSLError as error:
            message = _NO_PAIR if error.reason == "KEY_VALUES_MISMATCH" else _NO_CERTIFICATES
            raise errors.SettingsError(message.format(directory=self.directory)) from error
        except OSError as error:
            message = _NO_FILE.format(file=self.directory, reason=error.strerror)
            raise errors.SettingsError(message) from error
        if self._is_host:
            # A ticket would let in whom an authority vouched for that is trusted no more.
            context.num_tickets = 0
            # It is called for each connection, also where none is named.
            context.sni_callback = self._use_current_context
        return context

    def _use_current_context(
        self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext
    ) -> None:
        connection.context = self.context()


@dataclasses.dataclass(frozen=True, slots=True)
class TlsAddress:
    """Where a host of another machine listens.

    Attributes:
        name: which its certificate is for.
        port: of TCP.
        ip: where the name leads, if it leads to several hosts.
        credentials: of the bot.
    """

    name: str
    port: int
    ip: str = ""
    credentials: Credentials | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}{f' ({self.ip})' if self.ip else ''}"


Address: TypeAlias = pathlib.Path | TlsAddress
"""A socket, or the link that leads to one; or what is reached over TLS."""


def parse(text: str) -> tuple[str, int]:
    """Return name and port of an address.

    Raises:
        SettingsError: it is none.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise errors.SettingsError(f"{text!r} is no address, as 'host-1.example:7443' is one.")
    return match["name"].strip("[]"), int(match["port"])


def tls_error(error: BaseException, address: TlsAddress) -> str:
    """Return a sentence that says what is wrong with TLS; empty if it is something else."""
    cause = _ssl_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        unknown = _NO_HOST if cause.verify_code == _WRONG_PURPOSE else _OTHER_AUTHORITY
        return _VERIFY_MESSAGES.get(cause.verify_code, unknown).format(address=address)
    if cause is not None:
        return _NO_TLS.format(address=address)
    return ""


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the first of the errors of TLS that led to an error, if any did."""
    innermost = None
    while error is not None:
        # The client of HTTP wraps it into one that is of TLS as well, but says nothing.
        innermost = error if isinstance(error, ssl.SSLError) else innermost
        error = error.__cause__ or error.__context__
    return innermost


def _file_state(file: pathlib.Path) -> tuple[int, int, int]:
    try:
        status = os.stat(file)
    except OSError as error:
        message = _NO_FILE.format(file=file, reason=error.strerror)
        raise errors.SettingsError(message) from error
    return status.st_mtime_ns, status.st_ino, status.st_size
