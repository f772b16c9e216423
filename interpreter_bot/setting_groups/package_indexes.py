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

_NAME: Final = re.compile(r"[a-z0-9*?]([a-z0-9*?._-]*[a-z0-9*?])?", re.IGNORECASE)


def _named(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Write names of packages, or patterns of them, as indexes do."""
    for pattern in patterns:
        if not _NAME.fullmatch(pattern):
            raise ValueError(f"{pattern!r} is no name of a package, and no pattern of names")
    return tuple(re.sub(r"[-_.]+", "-", pattern).lower() for pattern in patterns)


Names = Annotated[tuple[str, ...], pydantic.AfterValidator(_named)]


class PackageIndex(fields.Group):
    """Where packages come from that people install, and which."""

    url: str = ""
    """Address of the index, public or a mirror, which ends in /simple as a rule. Empty: nothing can
    be installed."""
    netrc_file: pathlib.Path | None = None
    """File of the index's password, in the format of .netrc."""
    allow: Names = ("*",)
    """Names of packages that may be installed, with all they need; `*` stands for any letters."""
    deny: Names = ()
    """Names of packages that may not, though they are allowed."""
    missing: Literal["offer", "install", "say"] = "offer"
    """What is done about a module that code imports and that is not there: the package it probably
    comes from is offered, to whoever runs the code; or installed at once, which takes only what
    `allow` names in full and what is well known; or its name is said."""
    guesses: bool = True
    """Whether people may let the index be asked for a missing module whose name is not widely known
    and not in `allow`. It may be the name of a module of their own, so they are asked before."""
    cooldown_days: Annotated[int, pydantic.Field(ge=0, le=3650)] = 7
    """A release younger than this is not taken: most malicious ones are found within days. The
    index has to tell when files were uploaded; 0 takes all."""
    own: Names = ()
    """Names of packages that need not cool down, such as your own."""
    packages: Annotated[int, pydantic.Field(gt=0, le=1000)] = 60
    """Packages of one installation together."""
    download_bytes: fields.Positive = 500 * fields.MIB
    """Files of one installation together."""
    unpacked_bytes: fields.Positive = 2 * fields.GIB
    """What they may take of the disk."""
    build_seconds: fields.Seconds = 300.0
    """How long one installation may take."""
    cache_bytes: fields.Positive = 10 * fields.GIB
    """What all installed packages may take of the disk; those used longest ago are deleted."""

    @pydantic.field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        parts = urllib.parse.urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("it must begin with https:// or http://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("user and password belong into package_index.netrc_file")
        return url


class ChannelPackages(fields.Group):
    """Packages that all conversations of a place have; an empty part stands for any."""

    platform: str = ""
    workspace: str = ""
    channel: str = ""
    names: Annotated[tuple[str, ...], pydantic.Field(min_length=1, max_length=100)]
    """As after `pip install`."""

    def are_in(self, *place: str) -> bool:
        """Return whether conversations of this platform, workspace and channel have them."""
        parts = (self.platform, self.workspace, self.channel)
        return all(part in ("", other) for part, other in zip(parts, place, strict=True))
