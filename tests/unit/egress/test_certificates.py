"""Certificates of a kernel's authority."""

import datetime
import ssl

from cryptography import x509

from interpreter_bot.egress import certificates


def _shake_hands(server: ssl.SSLContext, authority: str, host: str) -> bytes:
    """Return the server's certificate, in DER, from a handshake in memory."""
    client_context = ssl.create_default_context(cadata=authority)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    ends = [client, server.wrap_bio(to_server, to_client, server_side=True)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    return client.getpeercert(binary_form=True)


def test_certificates_are_valid_for_a_kernel_that_is_in_use_for_years():
    authority = certificates.Authority(b"seed")
    context = authority.context("example.org")
    for certificate in (
        x509.load_pem_x509_certificate(authority.certificate.encode()),
        x509.load_der_x509_certificate(_shake_hands(context, authority.certificate, "example.org")),
    ):
        years = datetime.timedelta(days=3 * 365)
        assert certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + years
