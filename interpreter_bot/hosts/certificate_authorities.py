"""Small certificate authority for hosts and bots, in a directory of files.

Its key can impersonate any host and any bot, so it stays where certificates are made and is on no
machine where a host runs.
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

_KEY: Final = "ca.key"
_AUTHORITY_DAYS: Final = 3650
_NAME: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._:-]{0,62}")
# Clocks of machines differ, so certificates are valid from a little earlier.
_CLOCK_SKEW: Final = datetime.timedelta(hours=1)
_USAGES: Final = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class CertificateAuthority:
    """The authority in a directory, created if missing. Blocks."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Read the authority or create it.

        Raises:
            SettingsError: it cannot be read or created; the sentence says why.
        """
        self._directory = directory
        key_pem = private_files.read_or_create(directory / _KEY, lambda: _key_to_pem(_new_key()))
        certificate = directory / host_addresses.AUTHORITY
        try:
            key = serialization.load_pem_private_key(key_pem.encode(), password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise errors.SettingsError(host_words.not_an_authority_key(directory / _KEY))
            self._key = key
            private_files.read_or_create(certificate, self._own_certificate)
            self.certificate = certificate.read_text("ascii").strip()
            self._name = x509.load_pem_x509_certificate(self.certificate.encode()).subject
        except (ValueError, OSError) as error:
            message = host_words.not_an_authority(directory)
            raise errors.SettingsError(message) from error

    def issue(self, names: Sequence[str], *, is_bot: bool, days: int) -> pathlib.Path:
        """Issue a certificate with a new key, replacing a former one; return their directory.

        Args:
            names: the names and addresses by which bots reach a host, or any name of a bot.
            is_bot: whether it is a client's certificate; neither kind can pass for the other.
            days: validity.

        Raises:
            SettingsError: a name is invalid, or a file cannot be written.
        """
        for name in names:
            if not _NAME.fullmatch(name):
                raise errors.SettingsError(host_words.not_a_name(name))
        key = _new_key()
        kind = ExtendedKeyUsageOID.CLIENT_AUTH if is_bot else ExtendedKeyUsageOID.SERVER_AUTH
        issuer = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
        builder = _builder(names[0], self._name, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage("digital_signature"), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([kind]), False)
        builder = builder.add_extension(authority, False)
        alternatives = x509.SubjectAlternativeName(list(map(_alternative_name, names)))
        signed = builder.add_extension(alternatives, False).sign(self._key, hashes.SHA256())
        directory = self._directory / names[0].replace(":", "-").replace("*", "any")
        private_files.replace(directory / host_addresses.AUTHORITY, self.certificate)
        private_files.replace(directory / host_addresses.KEY, _key_to_pem(key))
        private_files.replace(directory / host_addresses.CERTIFICATE, _to_pem(signed))
        return directory

    def _own_certificate(self) -> str:
        name = _subject(f"interpreter-bot {datetime.datetime.now(datetime.UTC):%Y-%m-%d}")
        builder = _builder("", name, self._key, _AUTHORITY_DAYS).subject_name(name)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_key_usage("key_cert_sign", "crl_sign"), True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return _to_pem(builder.add_extension(identifier, False).sign(self._key, hashes.SHA256()))


def check_certificate(directory: pathlib.Path) -> str:
    """Return why the authority in its directory refuses a bot's certificate; empty if valid."""
    try:
        certificate, authority = (
            x509.load_pem_x509_certificate((directory / name).read_bytes())
            for name in (host_addresses.CERTIFICATE, host_addresses.AUTHORITY)
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


def _builder(
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


def _key_usage(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in names for name in _USAGES})


def _key_to_pem(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    encoded = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return encoded.decode("ascii")


def _to_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
