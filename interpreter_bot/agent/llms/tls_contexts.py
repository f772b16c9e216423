"""The certificate authorities that models' servers are checked against, read once for all clients.

Reading all authorities takes 50 ms, which an SDK would spend for each client and each proxy.
"""

from __future__ import annotations

import functools
import ssl

import httpx2


@functools.cache
def shared_context() -> ssl.SSLContext:
    """Return a context with the authorities of `SSL_CERT_FILE`, `SSL_CERT_DIR` or the system."""
    return httpx2.create_ssl_context()
