"""Environment variables by which programs find the bot's proxy and trust it.

Set only if anything may be reached: without them, programs fail sooner.
"""

from __future__ import annotations

import os
import ssl

from . import interpreter_state

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOCAL = "localhost,127.0.0.1,::1"
# These replace what a program trusts otherwise, so that the usual authorities must be in it.
_BUNDLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE"),
    *("GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "DENO_CERT"),
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)


def set_for(*, proxy: int, services: int, authority: str) -> None:
    """Set them.

    Args:
        proxy: port of the bot's proxy.
        services: port where hosts have plain addresses.
        authority: certificate of what the bot answers with in the place of a host.
    """
    bundle = f"{os.environ['HOME']}/authorities.pem"
    with open(bundle, "w") as file:
        file.write(_usual_authorities() + authority)
    address = f"http://127.0.0.1:{proxy}"
    variables = {spelled(name): address for name in _PROXIES for spelled in (str.upper, str.lower)}
    variables |= {"NO_PROXY": _LOCAL, "no_proxy": _LOCAL}
    variables["HOST_ALIASES"] = f"http://127.0.0.1:{services}/to"
    variables |= dict.fromkeys(_BUNDLES, bundle)
    interpreter_state.add_environment_variables(variables)


def _usual_authorities() -> str:
    """Return the certificates that programs here trust without us."""
    try:
        import certifi

        places = [certifi.where()]
    except ImportError:
        places = []
    places += [place for place in (ssl.get_default_verify_paths().cafile,) if place]
    for place in places:
        if os.path.exists(place):
            with open(place) as file:
                return file.read()
    return ""
