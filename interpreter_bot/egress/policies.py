"""Policies of conversations: the rules of the settings that apply to their places."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.egress import address_rules, host_names
from interpreter_bot.setting_groups import header_values
from interpreter_bot.wording import network_words

_METHOD_PATTERN: Final = re.compile(r"[A-Z]{1,20}", re.ASCII)
_HEADER_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_HEADER_VALUE_PATTERN: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", re.ASCII)


class Refusal(errors.BotError):
    """A request of code is refused.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, sentence: str | None = None, *, status: int = 403) -> None:
        super().__init__(sentence)
        self.status = status


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A host that may be reached.

    Attributes:
        pattern: a name, an address, or `*.` and a name.
        ports: allowed ports.
        places: places where the rule applies; empty for all.
        networks: allowed addresses besides public ones.
        methods: allowed methods; empty for all.
        paths: beginnings of allowed paths; empty for all.
        headers: added to each request, and secret from code.
        needs_approval: whether a person is asked before a request is sent.
    """

    pattern: str
    ports: frozenset[int]
    places: tuple[str, ...]
    networks: tuple[address_rules.Network, ...]
    methods: frozenset[str]
    paths: tuple[str, ...]
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    needs_approval: bool = False

    @property
    def must_be_read(self) -> bool:
        """Whether the bot has to read requests, rather than pass them on encrypted."""
        return bool(self.methods or self.paths or self.headers or self.needs_approval)


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one conversation."""

    rules: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def find(self, host: str, port: int) -> tuple[str, Rule]:
        """Return a host's normalized name and its first rule, without looking up the name.

        Raises:
            Refusal: there is no rule.
        """
        try:
            name = host_names.normalize(host)
        except host_names.NameRefusedError as error:
            raise Refusal(network_words.HOST_NOT_REACHABLE) from error
        matching_rules = [rule for rule in self.rules if host_names.matches(name, rule.pattern)]
        for rule in matching_rules:
            if port in rule.ports:
                return name, rule
        raise Refusal(network_words.not_listed(name, port, is_port=bool(matching_rules)))


def choose_policy(rules: Iterable[Rule], key: values.SessionKey) -> Policy:
    """Return the policy of a conversation."""
    return Policy(tuple(rule for rule in rules if key.is_in(rule.places)))


def compile_rules(
    entries: Sequence[settings.Egress], environment: Mapping[str, str]
) -> tuple[Rule, ...]:
    """Turn the settings into rules.

    `environment` has the secrets that `headers` name.

    Raises:
        SettingsError: an entry cannot be used; the sentence contains no secret.
    """
    return tuple(_compile_rule(entry, environment) for entry in entries)


def _compile_rule(entry: settings.Egress, environment: Mapping[str, str]) -> Rule:
    pattern = host_names.normalize_pattern(entry.host)
    networks = address_rules.parse_networks(entry.addresses)
    are_paths_absolute = all(path.startswith("/") for path in entry.paths)
    for is_wrong, flaw in (
        (pattern.startswith("*") and networks, network_words.WILDCARD_WITH_ADDRESSES),
        (not all(map(_METHOD_PATTERN.fullmatch, entry.methods)), network_words.METHODS_IN_CAPITALS),
        ("CONNECT" in entry.methods or "TRACE" in entry.methods, network_words.NEVER_ALLOWED),
        (not are_paths_absolute, network_words.PATHS_BEGIN_WITH_SLASH),
        (bool(entry.headers) and not entry.paths, network_words.HEADERS_NEED_PATHS),
        (bool(entry.headers) and pattern.startswith("*"), network_words.HEADERS_NEED_HOST),
    ):
        if is_wrong:
            raise errors.SettingsError(network_words.bad_entry(entry.host, flaw))
    return Rule(
        pattern=pattern,
        ports=frozenset(entry.ports),
        places=entry.places,
        networks=networks,
        methods=frozenset(entry.methods),
        paths=entry.paths,
        headers={
            name: _fill_header(entry.host, name, text, environment)
            for name, text in entry.headers.items()
        },
        needs_approval=entry.approval == "ask",
    )


def _fill_header(host: str, name: str, text: str, environment: Mapping[str, str]) -> str:
    """Return the value of a header that a rule adds."""
    try:
        value = header_values.fill_variables(text, environment)
    except header_values.VariableError as error:
        raise errors.SettingsError(network_words.bad_entry(host, str(error))) from None
    fault = header_values.header_fault(value)
    if not fault and not (
        _HEADER_NAME_PATTERN.fullmatch(name) and _HEADER_VALUE_PATTERN.fullmatch(value)
    ):
        fault = network_words.UNSENDABLE_HEADER
    if fault:
        flaw = network_words.bad_header(name, fault)
        raise errors.SettingsError(network_words.bad_entry(host, flaw))
    return value
