"""Which certificates of models' servers are trusted, read once for all clients.

Reading all authorities takes 50 ms, which an SDK would spend for each client and each proxy.
"""

from __future__ import annotations

import functools
import ssl

import httpx2


@functools.cache
def shared() -> ssl.SSLContext:
    """Return what all clients verify servers by: the authorities of `SSL_CERT_FILE`, of
    `SSL_CERT_DIR`, or of the system."""
    return httpx2.create_ssl_context()
