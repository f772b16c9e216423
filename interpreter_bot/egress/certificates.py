"""Certificates for connections that the bot reads: an authority for each kernel, which only that
kernel trusts, and a certificate for each host.
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

_MAX_HOSTS: Final = 256
_VALID_DAYS: Final = 30
_KEY_BYTES: Final = 48
# Of the curve P-256.
_CURVE_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_NAME: Final = "interpreter-bot, for one session"
_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Authority:
    """A certificate authority whose key is derived from a seed.

    Attributes:
        certificate: of it, as PEM.
        key_identifier: the same for the same key.
    """

    def __init__(self, seed: bytes = b"") -> None:
        """Derive the key from `seed`, secret random bytes; empty for a new key."""
        self._key = _key(seed)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self.key_identifier = self._identifier.digest.hex()
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), True)
        builder = builder.add_extension(self._identifier, False)
        signed = builder.sign(self._key, hashes.SHA256())
        self.certificate = signed.public_bytes(serialization.Encoding.PEM).decode("ascii")
        # One key for all hosts, because generating it takes longest.
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts = cachetools.LRUCache[str, ssl.SSLContext](_MAX_HOSTS)

    def context(self, host: str) -> ssl.SSLContext:
        """Return a TLS context that answers for a host."""
        if host not in self._contexts:
            self._contexts[host] = self._make_context(host)
        return self._contexts[host]

    def _make_context(self, host: str) -> ssl.SSLContext:
        address = host_names.literal(host)
        alternative = x509.DNSName(host) if address is None else x509.IPAddress(address)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = self._builder(x509.Name([]), self._leaf_key)
        # Critical, as the subject is empty: a name longer than 64 characters would not fit there.
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), True)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage("digital_signature"), True)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(usage, False).add_extension(authority, False)
        signed = builder.sign(self._key, hashes.SHA256())
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        _load(context, key + signed.public_bytes(serialization.Encoding.PEM))
        return context

    def _builder(
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


def _key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    if not seed:
        return ec.generate_private_key(ec.SECP256R1())
    # Much longer than the order of the curve, so that all numbers are equally likely.
    wide = hashlib.shake_256(seed).digest(_KEY_BYTES)
    return ec.derive_private_key(
        1 + int.from_bytes(wide, "big") % (_CURVE_ORDER - 1), ec.SECP256R1()
    )


def _usage(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in names for name in _USAGES})


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key and its certificate by a file in memory: Python reads files only."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
