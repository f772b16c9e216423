"""The network that code reaches: approvals, refusals of the proxy, and settings of `egress`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# What the proxy answers to code; people read it in a traceback.
HOST_NOT_REACHABLE: Final = "Code cannot reach that host."
NO_TRACE: Final = "The proxy does not pass on the method TRACE."
NO_UPGRADE: Final = "The proxy does not pass on a change of protocol, such as a web socket."
NOT_A_PATH: Final = "The request does not ask for a path."
OTHER_TARGET: Final = "The Host header names another host than the one the request is sent to."
MALFORMED_REQUEST: Final = "The proxy cannot pass this request on: it is not valid HTTP."
MALFORMED_ANSWER: Final = "The host's answer is not valid HTTP, so it is not passed on."
HEAD_TOO_LONG: Final = "The headers of the request are too long."
ONLY_HTTP: Final = "The proxy understands only http:// addresses and CONNECT."
TOOK_TOO_LONG: Final = "It took too long."
BROKE_OFF: Final = "The connection broke off."
NO_SERVICE: Final = "The bot has no such service for this conversation."
BODY_TOO_LARGE: Final = "The request is too large."
TRAFFIC_USED_UP: Final = (
    "Code in this conversation has used up its network traffic for today. Try again tomorrow."
)


def approval_question(method: str, host: str, port: int, target: str, first_bytes: bytes) -> str:
    """Return the question whether a request may be sent.

    Args:
        method: of the request.
        host: to which it goes.
        port: of that host.
        target: its path, shortened.
        first_bytes: of its body; may be empty.
    """
    excerpt = f"\nIt begins with {first_bytes!a}." if first_bytes else ""
    return (
        f"{method} to {host}, port {port}: {target}{excerpt}\n"
        "An approval for this session is for everybody here, as long as this Python runs."
    )


def more_characters(count: int) -> str:
    return f"… (and {count:,} more characters)"


def declined(method: str, host: str) -> str:
    return f"{method} on {host} was not allowed."


def nobody_to_ask(method: str, host: str) -> str:
    return (
        f"{method} on {host} needs somebody's approval, and nobody could be asked. Try again while "
        "code runs in a conversation."
    )


def unanswered(method: str, host: str) -> str:
    return f"{method} on {host} needs somebody's approval, and nobody answered. Try again."


def not_listed(host: str, port: int, *, is_port: bool) -> str:
    """Return that a host, or only a port of it, is not allowed."""
    subject = "this port is" if is_port else "this host is"
    return (
        f"Code cannot reach {host}, port {port}: {subject} not allowed. Ask whoever runs this bot "
        "to add it under `egress` in its settings."
    )


def not_found(host: str) -> str:
    return f"The name {host} cannot be found."


def private_address(host: str) -> str:
    return (
        f"{host} has only addresses that code may not reach. Whoever runs this bot can allow "
        "private ones with `addresses` in its entry under `egress`."
    )


def host_not_answering(host: str, port: int) -> str:
    return f"{host}, port {port}, does not answer."


def host_too_slow(host: str) -> str:
    return f"{host} took too long, or sending the request to it did."


def wrong_method(host: str, methods: Sequence[str], method: str) -> str:
    return f"{method} is not allowed on {host}. Allowed: {', '.join(methods)}."


def wrong_path(host: str, paths: Sequence[str]) -> str:
    return f"On {host}, only paths below {', '.join(paths)} are allowed."


def only_https(host: str, port: int) -> str:
    return f"{host}, port {port}, can be reached only by https."


def certificate_untrusted(host: str) -> str:
    return f"The certificate of {host} is not trusted, so nothing was sent."


def holds_secret(host: str) -> str:
    return f"The answer of {host} contains a secret of the bot, so it is not passed on."


def answer_compressed(host: str) -> str:
    return (
        f"{host} sent a compressed answer, which the bot cannot check for secrets, so it is not "
        "passed on."
    )


def answer_partial(host: str) -> str:
    return (
        f"{host} sent part of a file, and the bot can check only whole answers for secrets, so it "
        "is not passed on."
    )


def not_tls(host: str) -> str:
    return f"The connection to {host} has to begin with TLS, and does not."


def other_name(host: str) -> str:
    return f"A connection to {host} asked for another host in its TLS greeting."


def idle_too_long(seconds: float) -> str:
    return f"Nothing came for {seconds:g} seconds."


def too_many_requests(limit: int) -> str:
    return (
        f"Code in this conversation has used the network {limit:,} times within an hour, the most "
        "that is allowed. Try again later."
    )


def sent_too_much(limit: int) -> str:
    return f"The request is larger than the {limit:,} bytes allowed."


def received_too_much(limit: int) -> str:
    return f"The answer is larger than the {limit:,} bytes allowed."


# Settings of `egress`; the operator reads them.
WILDCARD_WITH_ADDRESSES: Final = "a host with `*` cannot have `addresses`"
METHODS_IN_CAPITALS: Final = "write `methods` in capitals, such as GET"
NEVER_ALLOWED: Final = "CONNECT and TRACE are never allowed as `methods`"
PATHS_BEGIN_WITH_SLASH: Final = "each of `paths` has to begin with /"
HEADERS_NEED_PATHS: Final = "`headers` need `paths`"
HEADERS_NEED_HOST: Final = "`headers` need one host, without `*`"


def bad_entry(host: str, flaw: str) -> str:
    return f"egress, {host}: {flaw}."


def not_an_address(text: str) -> str:
    return f"egress: {text!r} is not an address or a network."


def not_a_host(text: str) -> str:
    return f"egress: {text!r} is not the name of a host."


def too_broad(host: str) -> str:
    return f"egress: {host} is too broad; name a domain that belongs to one owner."


def bad_header(name: str, fault: str) -> str:
    return f"the header {name} {fault}"


UNSENDABLE_HEADER: Final = "has a name or value that HTTP does not allow"
