"""The table of requests of a bot to a host, made from the methods of protocols in `ports`.

`request_method` marks a method whose calls go to the host. Its declaration determines the message
with its arguments, the type of its answer, and its name in the table. A class that inherits the
method sends it (`Sender`); the host calls the method of the same name, with the same names of
parameters (`kernel_host.request_answers`).
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Callers may pass any collection; the host receives a tuple.
_DECODED_TYPES: Final[dict[Any, Any]] = {
    collections.abc.Collection[str]: tuple[str, ...],
    collections.abc.Collection[str] | None: tuple[str, ...] | None,
}


@dataclasses.dataclass(frozen=True)
class Request:
    """A method that is sent as a request.

    Attributes:
        declaration: the method in its protocol.
        is_long: whether the answer waits for disks, kernels or people, and so has no time limit.
        is_unrepeatable: whether it must not be sent again if the host ends before its answer.
        is_cancelled_on_disconnect: whether the host cancels it if the bot disconnects.
    """

    declaration: Callable[..., Any]
    is_long: bool
    is_unrepeatable: bool
    is_cancelled_on_disconnect: bool

    @property
    def name(self) -> str:
        """Names of its class and method, such as `Hosts.release`."""
        return self.declaration.__qualname__

    @property
    def method_name(self) -> str:
        return self.declaration.__name__

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        # Read at the first use: the module that declares the method is complete then.
        hints = typing.get_type_hints(self.declaration)
        return {name: _DECODED_TYPES.get(hint, hint) for name, hint in hints.items()}

    @property
    def answer(self) -> Any:  # noqa: ANN401 - a type, or None
        return self._types["return"]

    @functools.cached_property
    def arguments(self) -> type[Any]:
        """Dataclass of its arguments, which is sent."""
        fields = []
        for parameter in list(inspect.signature(self.declaration).parameters.values())[1:]:
            options: dict[str, Any] = {"kw_only": parameter.kind is parameter.KEYWORD_ONLY}
            if parameter.default is not parameter.empty:
                options["default"] = parameter.default
            field = dataclasses.field(**options)
            fields.append((parameter.name, self._types[parameter.name], field))
        return dataclasses.make_dataclass(self.method_name, fields, frozen=True)


class Sender(Protocol):
    """An object that sends the requests it inherits."""

    async def send_request(self, request: Request, arguments: Any) -> Any:  # noqa: ANN401
        """Send a request with an instance of its `arguments`, and return the answer."""


_REQUESTS: Final[dict[str, Request]] = {}
REQUESTS: Final = types.MappingProxyType(_REQUESTS)
"""All requests by name."""


def request_method(
    *,
    is_long: bool = False,
    is_unrepeatable: bool = False,
    is_cancelled_on_disconnect: bool = False,
) -> Callable[[F], F]:
    """Mark a method of a protocol as a request; see `Request`."""

    def decorate(method: F) -> F:
        request = Request(method, is_long, is_unrepeatable, is_cancelled_on_disconnect)
        _REQUESTS[request.name] = request

        @functools.wraps(method)
        async def send(self: Sender, *args: object, **options: object) -> Any:  # noqa: ANN401
            return await self.send_request(request, request.arguments(*args, **options))

        return typing.cast("F", send)

    return decorate
