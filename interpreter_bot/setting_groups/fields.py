"""Base class of setting groups, and types with units."""

from __future__ import annotations

import decimal
from typing import Annotated, TypeAlias

import pydantic

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

Positive: TypeAlias = Annotated[int, pydantic.Field(gt=0)]
Seconds: TypeAlias = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Price: TypeAlias = Annotated[decimal.Decimal, pydantic.Field(ge=0, allow_inf_nan=False)]


class Group(pydantic.BaseModel):
    """Group of settings (a TOML table): frozen, and strict about unknown names."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")
