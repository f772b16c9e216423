"""Certificates for connections that the bot reads: one for each host, issued by an authority of
the kernel, which only that kernel trusts.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
from typing import Final

import cachetools
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from interpreter_bot.egress import host_names
from interpreter_bot.hosts import certificate_authorities

_MAX_HOSTS: Final = 256
# A kernel gets the authority's certificate once, and lives as long as it is used.
_VALID_DAYS: Final = 10 * 365
_KEY_BYTES: Final = 48
# Of the curve P-256.
_CURVE_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_NAME: Final = "interpreter-bot, for one session"


class Authority:
    """A certificate authority whose key is derived from a seed.

    Attributes:
        certificate: certificate of the authority, as PEM.
        key_identifier: of the authority's key, the same for the same seed.
    """

    def __init__(self, seed: bytes) -> None:
        """Derive the key from `seed`, secret random bytes."""
        self._key = _derive_key(seed)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self.key_identifier = self._identifier.digest.hex()
        builder = self._make_builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(
            certificate_authorities.key_usage("key_cert_sign", "crl_sign"), True
        )
        builder = builder.add_extension(self._identifier, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = certificate_authorities.to_pem(certificate)
        # One key for all hosts, because generating it takes longest.
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts = cachetools.LRUCache[str, ssl.SSLContext](_MAX_HOSTS)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the TLS context with which the bot answers as a host."""
        if host not in self._contexts:
            self._contexts[host] = self._make_context(host)
        return self._contexts[host]

    def _make_context(self, host: str) -> ssl.SSLContext:
        address = host_names.parse_address(host)
        alternative_name = x509.DNSName(host) if address is None else x509.IPAddress(address)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = self._make_builder(x509.Name([]), self._leaf_key)
        # Critical because the subject is empty, as it cannot hold names over 64 characters.
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative_name]), True)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(
            certificate_authorities.key_usage("digital_signature"), True
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(usage, False).add_extension(authority, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        _load_certificate(context, key + certificate.public_bytes(serialization.Encoding.PEM))
        return context

    def _make_builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        )


def _derive_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    # Much longer than the order of the curve, so that all numbers are equally likely.
    number_bytes = hashlib.shake_256(seed).digest(_KEY_BYTES)
    return ec.derive_private_key(
        1 + int.from_bytes(number_bytes, "big") % (_CURVE_ORDER - 1), ec.SECP256R1()
    )


def _load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key and its certificate from a file in memory, because Python only reads files."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
