"""Environment variables by which programs find the bot's proxy and trust it.

They are set only if the proxy allows anything; without them, programs fail sooner.
"""

from __future__ import annotations

import os
import ssl

from . import interpreter_state

_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_DIRECT_HOSTS = "localhost,127.0.0.1,::1"
# A program trusts the authorities in this file instead of the usual ones, so it has those, too.
_BUNDLE_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE"),
    *("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "DENO_CERT"),
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)


def set_variables(*, proxy_port: int, authority: str) -> None:
    """Set the variables.

    Args:
        proxy_port: port of the bot's proxy.
        authority: certificate of the authority that signs the proxy's certificates.
    """
    bundle = f"{os.environ['HOME']}/authorities.pem"
    with open(bundle, "w") as file:
        file.write(_read_usual_authorities() + authority)
    address = f"http://127.0.0.1:{proxy_port}"
    variables = {
        change_case(name): address
        for name in _PROXY_VARIABLES
        for change_case in (str.upper, str.lower)
    }
    variables |= {"NO_PROXY": _DIRECT_HOSTS, "no_proxy": _DIRECT_HOSTS}
    variables |= dict.fromkeys(_BUNDLE_VARIABLES, bundle)
    interpreter_state.add_environment_variables(variables)


def _read_usual_authorities() -> str:
    """Return the certificates that programs trust without these variables."""
    try:
        import certifi

        paths = [certifi.where()]
    except ImportError:
        paths = []
    paths += [path for path in (ssl.get_default_verify_paths().cafile,) if path]
    for path in paths:
        if os.path.exists(path):
            with open(path) as file:
                return file.read()
    return ""
