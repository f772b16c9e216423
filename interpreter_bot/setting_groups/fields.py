"""Base class of setting groups, and types with units."""

from __future__ import annotations

import decimal
import re
from typing import Annotated, Final, TypeAlias

import pydantic

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

Positive: TypeAlias = Annotated[int, pydantic.Field(gt=0)]
Seconds: TypeAlias = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
_LISTEN_PATTERN: Final = re.compile(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def _check_listen_address(address: str) -> str:
    match = _LISTEN_PATTERN.fullmatch(address)
    if match is None or int(match[1]) > 65535:
        raise ValueError("it must be an address and a port, such as 127.0.0.1:8765")
    return address


def _check_if_set(address: str) -> str:
    return address and _check_listen_address(address)


ListenAddress: TypeAlias = Annotated[str, pydantic.AfterValidator(_check_listen_address)]
OptionalListenAddress: TypeAlias = Annotated[str, pydantic.AfterValidator(_check_if_set)]
Price: TypeAlias = Annotated[decimal.Decimal, pydantic.Field(ge=0, allow_inf_nan=False)]


class Group(pydantic.BaseModel):
    """Group of settings (a TOML table): frozen, and strict about unknown names."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class ServerGroup(Group):
    """Settings of a server, which listens at `listen`; an empty address switches it off."""

    listen: OptionalListenAddress

    @property
    def is_listening(self) -> bool:
        """Whether it listens at all."""
        return bool(self.listen)

    @property
    def host(self) -> str:
        """The address without the port, and without the brackets of IPv6."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port; 0 means any free one."""
        return int(self.listen.rpartition(":")[2])
