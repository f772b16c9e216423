"""Addresses of hosts: a socket of this machine, or a name and port with TLS.

Over TLS, each end checks that the other's certificate is from the same small authority. A host's
certificate has the names of the host, and a bot's is for clients only. If certificate files are
replaced, new connections use the new files.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import re
import ssl
from typing import Final, TypeAlias

from interpreter_bot import errors
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
AUTHORITY_FILE: Final = "ca.crt"
# Names as in TLS secrets of Kubernetes.
_FILE_NAMES: Final = (CERTIFICATE_FILE, KEY_FILE, AUTHORITY_FILE)
_ADDRESS_PATTERN: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})"
)


class Credentials:
    """Certificate, key and trusted authority of one end, in a directory. Blocks briefly."""

    def __init__(self, directory: pathlib.Path, *, is_host: bool) -> None:
        """Read `tls.crt`, `tls.key` and `ca.crt` of a directory.

        Raises:
            SettingsError: a file is missing or invalid; the sentence says which.
        """
        self.directory = directory
        self._is_host = is_host
        self._loaded_file_states = self._read_file_states()
        self._context = self._build_context()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection, of the present files if these are valid."""
        try:
            file_states = self._read_file_states()
            if file_states != self._loaded_file_states:
                self._context = self._build_context()
                self._loaded_file_states = file_states
        except errors.SettingsError as error:
            _log.warning("changed certificates cannot be used: %s", error)
        return self._context

    def _read_file_states(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(map(_file_state, (self.directory / name for name in _FILE_NAMES)))

    def _build_context(self) -> ssl.SSLContext:
        certificate, key, authority = (self.directory / name for name in _FILE_NAMES)
        protocol = ssl.PROTOCOL_TLS_SERVER if self._is_host else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(certificate, key)
            context.load_verify_locations(authority)
        except ssl.SSLError as error:
            is_pair_wrong = error.reason == "KEY_VALUES_MISMATCH"
            describe_flaw = (
                host_words.key_of_other_certificate
                if is_pair_wrong
                else host_words.not_certificates
            )
            raise errors.SettingsError(describe_flaw(self.directory)) from error
        except OSError as error:
            message = host_words.no_certificate(self.directory, error.strerror)
            raise errors.SettingsError(message) from error
        if self._is_host:
            # With a session ticket, a bot of an authority that is no longer trusted could connect.
            context.num_tickets = 0
            # OpenSSL calls it for each connection, even without a server name.
            context.sni_callback = self._use_current_context
        return context

    def _use_current_context(
        self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext
    ) -> None:
        connection.context = self.context()


@dataclasses.dataclass(frozen=True, slots=True)
class TlsAddress:
    """Address of a host on another machine.

    Attributes:
        name: host name in its certificate.
        port: TCP port.
        ip: address of this host, if the name has several hosts.
        credentials: of the bot; for the host's own listening address, of the host.
    """

    name: str
    port: int
    ip: str = ""
    credentials: Credentials | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}{f' ({self.ip})' if self.ip else ''}"


Address: TypeAlias = pathlib.Path | TlsAddress
"""The path of a socket or of a link to it, or a TLS address."""


def parse(text: str) -> tuple[str, int]:
    """Return name and port of an address.

    Raises:
        SettingsError: the text is not an address.
    """
    match = _ADDRESS_PATTERN.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise errors.SettingsError(host_words.not_an_address(text))
    return match["name"].strip("[]"), int(match["port"])


def tls_error(error: BaseException, address: TlsAddress) -> str:
    """Return a sentence on what is wrong with TLS; empty if the error has another cause."""
    cause = _find_ssl_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return host_words.refused_certificate(address, cause.verify_code)
    if cause is not None:
        return host_words.no_tls(address)
    return ""


def _find_ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the innermost TLS error among the causes of an error; None if there is none."""
    innermost = None
    while error is not None:
        # aiohttp wraps this error in another SSLError without details.
        innermost = error if isinstance(error, ssl.SSLError) else innermost
        error = error.__cause__ or error.__context__
    return innermost


def _file_state(file: pathlib.Path) -> tuple[int, int, int]:
    try:
        status = os.stat(file)
    except OSError as error:
        message = host_words.no_certificate(file, error.strerror)
        raise errors.SettingsError(message) from error
    return status.st_mtime_ns, status.st_ino, status.st_size
