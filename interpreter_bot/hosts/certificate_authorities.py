"""Small certificate authority for hosts and bots, in a directory of files.

With its key, anybody can impersonate any host and any bot. So the key stays on the machine where
certificates are made, and must not be on a machine that runs a host.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import pathlib
import re
from collections.abc import Sequence
from typing import Final

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from interpreter_bot import errors, private_files
from interpreter_bot.hosts import host_addresses
from interpreter_bot.wording import host_words

_KEY_FILE: Final = "ca.key"
_AUTHORITY_DAYS: Final = 3650
_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._:-]{0,62}")
# Clocks of machines differ, so certificates are valid from a little earlier.
_CLOCK_SKEW: Final = datetime.timedelta(hours=1)
_KEY_USAGES: Final = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class CertificateAuthority:
    """The authority in a directory. Its calls block."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Read the authority or create it.

        Raises:
            SettingsError: it cannot be read or created; the sentence says why.
        """
        self._directory = directory
        key_pem = private_files.read_or_create(
            directory / _KEY_FILE, lambda: _key_to_pem(_new_key())
        )
        certificate_file = directory / host_addresses.AUTHORITY_FILE
        try:
            key = serialization.load_pem_private_key(key_pem.encode(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise errors.SettingsError(host_words.not_an_authority_key(directory / _KEY_FILE))
            self._key = key
            private_files.read_or_create(certificate_file, self._make_authority_certificate)
            self.certificate = certificate_file.read_text("ascii").strip()
            self._name = x509.load_pem_x509_certificate(self.certificate.encode()).subject
        except (ValueError, OSError) as error:
            message = host_words.not_an_authority(directory)
            raise errors.SettingsError(message) from error

    def issue(self, names: Sequence[str], *, is_bot: bool, days: int) -> pathlib.Path:
        """Issue a certificate with a new key, replacing former files; return their directory.

        Args:
            names: names and addresses by which bots reach a host, or any name of a bot.
            is_bot: whether it is a client's certificate, which no host can use, or a host's.
            days: how long it is valid.

        Raises:
            SettingsError: a name is invalid, or a file cannot be written.
        """
        for name in names:
            if not _NAME_PATTERN.fullmatch(name):
                raise errors.SettingsError(host_words.not_a_name(name))
        key = _new_key()
        extended_usage = (
            ExtendedKeyUsageOID.CLIENT_AUTH if is_bot else ExtendedKeyUsageOID.SERVER_AUTH
        )
        issuer_identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        authority_identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
            issuer_identifier
        )
        builder = _make_builder(names[0], self._name, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(key_usage("digital_signature"), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([extended_usage]), False)
        builder = builder.add_extension(authority_identifier, False)
        alternative_names = x509.SubjectAlternativeName(list(map(_alternative_name, names)))
        certificate = builder.add_extension(alternative_names, False).sign(
            self._key, hashes.SHA256()
        )
        directory = self._directory / names[0].replace(":", "-").replace("*", "any")
        private_files.replace(directory / host_addresses.AUTHORITY_FILE, self.certificate)
        private_files.replace(directory / host_addresses.KEY_FILE, _key_to_pem(key))
        private_files.replace(directory / host_addresses.CERTIFICATE_FILE, to_pem(certificate))
        return directory

    def _make_authority_certificate(self) -> str:
        name = _subject(f"interpreter-bot {datetime.datetime.now(datetime.UTC):%Y-%m-%d}")
        builder = _make_builder("", name, self._key, _AUTHORITY_DAYS).subject_name(name)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(key_usage("key_cert_sign", "crl_sign"), True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return to_pem(builder.add_extension(identifier, False).sign(self._key, hashes.SHA256()))


def check_certificate(directory: pathlib.Path) -> str:
    """Return why the authority beside a bot's certificate refuses it; empty if it is valid."""
    try:
        certificate, authority = (
            x509.load_pem_x509_certificate((directory / name).read_bytes())
            for name in (host_addresses.CERTIFICATE_FILE, host_addresses.AUTHORITY_FILE)
        )
    except (OSError, ValueError):
        return host_words.CERTIFICATE_UNREADABLE
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return host_words.CERTIFICATE_OF_OTHERS
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        return host_words.CERTIFICATE_EXPIRED
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ""
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        return host_words.CERTIFICATE_OF_HOST
    return ""


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _make_builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - _CLOCK_SKEW)
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    return builder.subject_name(_subject(name)) if name else builder


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative_name(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


def key_usage(*names: str) -> x509.KeyUsage:
    """Return the extension that allows a key only the named usages."""
    return x509.KeyUsage(**{name: name in names for name in _KEY_USAGES})


def _key_to_pem(key: ec.EllipticCurvePrivateKey) -> str:
    key_format = serialization.PrivateFormat.PKCS8
    encoded = key.private_bytes(
        serialization.Encoding.PEM, key_format, serialization.NoEncryption()
    )
    return encoded.decode("ascii")


def to_pem(certificate: x509.Certificate) -> str:
    """Encode a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
