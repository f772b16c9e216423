"""Settings of packages that people install into running kernels."""

from __future__ import annotations

import pathlib
import re
import urllib.parse
from typing import Annotated, Final, Literal

import pydantic

from interpreter_bot.setting_groups import fields

CERTIFICATE_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of the environment by which programs know whose certificates a machine trusts."""

PROXY_VARIABLES: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Variables of the environment by which programs know a network's proxy."""

_MIN_UNPACKED_BYTES: Final = 16 * fields.MIB
_NAME_PATTERN: Final = re.compile(r"[a-z0-9*?]([a-z0-9*?._-]*[a-z0-9*?])?", re.IGNORECASE)


def _normalize_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Write names of packages, or patterns of them, as indexes do."""
    for pattern in patterns:
        if not _NAME_PATTERN.fullmatch(pattern):
            raise ValueError(f"{pattern!r} is not the name of a package or a pattern of names")
    return tuple(re.sub(r"[-_.]+", "-", pattern).lower() for pattern in patterns)


PackageNames = Annotated[tuple[str, ...], pydantic.AfterValidator(_normalize_names)]


class PackageIndex(fields.Group):
    """Packages that people install into running kernels: from where, and which."""

    url: str = ""
    """Address of the package index, public or a mirror; it usually ends in /simple. Empty means
    that nothing can be installed."""
    netrc_file: pathlib.Path | None = None
    """File with the index's password, in .netrc format."""
    allow: PackageNames = ("*",)
    """Names of packages that may be installed, dependencies included. `*` matches any
    characters."""
    deny: PackageNames = ()
    """Names of packages that may not be installed even if `allow` matches."""
    missing: Literal["offer", "install", "say"] = "offer"
    """What happens when code imports a missing module. `offer`: offer the likely package to the
    person. `install`: install it without asking if it is well known or `allow` names it in full.
    `say`: only name the package."""
    cooldown_days: Annotated[int, pydantic.Field(ge=0, le=3650)] = 7
    """Skip releases younger than this; most malicious ones are found within days. The index has to
    report upload times. 0 accepts all."""
    own: PackageNames = ()
    """Names of packages that are exempt from `cooldown_days`, such as your own."""
    cache_bytes: fields.Positive = 10 * fields.GIB
    """Disk space for all installed packages. The least recently used are deleted. One installation
    may have a fifth of it, but at least 16 MiB."""

    @property
    def unpacked_bytes(self) -> int:
        """Unpacked size of one installation."""
        return max(self.cache_bytes // 5, _MIN_UNPACKED_BYTES)

    @pydantic.field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urllib.parse.urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("it must begin with https:// or http://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("user and password belong in package_index.netrc_file")
        return url


class ChannelPackages(fields.Group):
    """Packages that all conversations of some places have."""

    places: tuple[str, ...] = ()
    """Where: `slack`, `slack/T024BE7LD`, `slack/T024BE7LD/C0123456789`, `discord/GUILD/CHANNEL`,
    `web`, `console`. Empty means everywhere."""
    names: Annotated[tuple[str, ...], pydantic.Field(min_length=1, max_length=100)]
    """Requirements as for `pip install`."""
