"""Facts about a session as labels and values, which each platform writes in its syntax. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from interpreter_bot import code_activity, session_variables, settings, values
from interpreter_bot.text import quantities
from interpreter_bot.wording import fact_words, place_words

if TYPE_CHECKING:
    # These import the database, which a command that shows limits does not need.
    import decimal

    from interpreter_bot.sessions import past_turns, places, tool_listings

_MAX_VARIABLES: Final = 20
_MAX_TOOLS: Final = 30
_MAX_CHARACTERS: Final = 600


class Fact(NamedTuple):
    """A line of a list.

    Attributes:
        label: names the value.
        value: may be empty.
        note: details, for platforms that have room; may be empty.
    """

    label: str
    value: str
    note: str = ""


def describe_limit(name: str, value: float) -> Fact:
    """Describe a limit; the note says what happens at it."""
    label, note = (fact_words.LIMITS_OF_CODE | fact_words.LIMITS_OF_HOST)[name]
    if name.endswith("_bytes"):
        return Fact(label, quantities.size(value), note)
    is_time = name.endswith("_seconds")
    return Fact(label, quantities.duration(value) if is_time else f"{value:,g}", note)


def describe_limits(
    limits: settings.Limits,
    kernels: settings.Kernels,
    sandbox_level: values.SandboxLevel = values.SandboxLevel.FULL,
) -> list[Fact]:
    """Describe the limits of code, including those of a sandbox level."""
    facts = [describe_limit(name, getattr(limits, name)) for name in fact_words.LIMITS_OF_CODE]
    if sandbox_level is values.SandboxLevel.NONE:
        facts.append(Fact(*fact_words.NO_SANDBOX_FACT))
    if sandbox_level is values.SandboxLevel.CONTAINER:
        facts.append(Fact(*fact_words.CONTAINER_FACT))
    if kernels.per_person:
        facts.append(
            Fact(
                fact_words.SESSION_LIMIT_LABEL,
                f"{kernels.per_person}",
                fact_words.SESSION_LIMIT_NOTE,
            )
        )
    return facts


def describe_usage(summary: past_turns.UsageSummary) -> list[Fact]:
    """Describe the usage of a conversation and of a person."""
    cpu_time = quantities.duration(summary.session.cpu_seconds)
    session_usage = f"{_describe_spending(summary.session)}, {cpu_time} of processor time"
    return [
        Fact("This conversation", session_usage, _describe_tokens(summary.session)),
        Fact("You, today", describe_today(summary), _describe_tokens(summary.today)),
    ]


def describe_today(summary: past_turns.UsageSummary) -> str:
    """Describe a person's usage today, and the limits of it."""
    return _describe_spending(summary.today, summary.allowed_tokens, summary.allowed_money)


def _describe_spending(
    usage: values.Usage,
    allowed_tokens: int | None = None,
    allowed_money: decimal.Decimal | None = None,
) -> str:
    prefix = "about " if usage.is_estimated else ""
    text = f"{prefix}{usage.input_tokens + usage.output_tokens:,} tokens"
    if allowed_tokens is not None:
        text += f" ({allowed_tokens:,} allowed)"
    if usage.money or allowed_money is not None:
        text += f", cost {usage.money:,.4f}"
    return text if allowed_money is None else f"{text} ({allowed_money:,.2f} allowed)"


def _describe_tokens(usage: values.Usage) -> str:
    return f"{usage.input_tokens:,} input, {usage.output_tokens:,} output tokens"


def list_models(titles: Iterable[str], current: str | None) -> list[Fact]:
    """List models, and which is in use."""
    return [Fact(title, "in use" if title == current else "") for title in titles]


def format_utc(timestamp: float) -> str:
    """Write a time, in seconds since the epoch."""
    return f"{datetime.datetime.fromtimestamp(timestamp, datetime.UTC):%-d %B at %H:%M} UTC"


def describe_variables(
    state: session_variables.SessionVariables, *, format_time: Callable[[float], str] = format_utc
) -> list[Fact]:
    """Describe a session's variables: which are saved, which are not, and why.

    Args:
        state: the variables in Python, and the saved ones.
        format_time: writes a time as the platform shows it.
    """
    suffix = f" and {state.unlisted_count:,} more" if state.unlisted_count else ""
    facts = [Fact("In Python now", f"{', '.join(state.names)}{suffix}" or "nothing")]
    if (saved := state.saved) is None:
        return [*facts, Fact("Saved", "nothing")]
    facts.append(
        Fact(
            "Saved",
            f"{quantities.count(saved.kept_count, 'variable')} on {format_time(saved.saved_at)}",
        )
    )
    for heading, entries, count in (
        ("Not saved", saved.lost, saved.lost_count),
        ("Saved without these parts", saved.partly_saved, saved.partly_saved_count),
    ):
        facts += [Fact(heading, f"{name} ({reason})") for name, reason in entries[:_MAX_VARIABLES]]
        if count > _MAX_VARIABLES:
            facts.append(Fact(heading, f"{count - _MAX_VARIABLES:,} more"))
    if saved.lost:
        facts.append(Fact(*fact_words.REBUILD_FACT))
    return facts


def describe_choice(name: str, value: str, choice: places.Choice | None) -> Fact:
    """Describe the value of a setting, and who chose it; `choice` is None for a default."""
    short_value = quantities.one_line(value, _MAX_CHARACTERS)
    if choice is None:
        return Fact(name, f"{short_value} ({place_words.BY_DEFAULT})")
    author = quantities.one_line(choice.author, _MAX_CHARACTERS)
    origin = place_words.choice_origin(
        _find_scope_kind(choice.scope), author, is_fixed=choice.is_fixed
    )
    return Fact(name, f"{short_value} ({origin})")


def describe_note(note: places.Note, *, format_time: Callable[[float], str]) -> Fact:
    """Describe a note: its number, its text, who confirmed it."""
    wider = "" if note.channel or note.person else place_words.FOR_WHOLE_SERVER
    about = ", ".join(filter(None, (note.author, format_time(note.created.timestamp()), wider)))
    return Fact(f"{note.id}", f"{note.text} ({about})")


def _find_scope_kind(scope: values.Scope) -> str:
    """Return the kind of a scope: a person, thread, channel, server, or whole platform."""
    kinds = {
        "person": scope.person,
        "thread": scope.thread,
        "channel": scope.channel,
        "server": scope.workspace,
    }
    return next((kind for kind, part in kinds.items() if part), "platform")


def list_offers(
    reach: code_activity.Reach,
    servers: Sequence[tool_listings.ServerTools],
    *,
    packages: Sequence[str],
    skills: Sequence[str],
    summary: past_turns.UsageSummary,
) -> list[Fact]:
    """List what the operator's settings give a place, and a person's daily limits."""
    limits = [f"{summary.allowed_tokens:,} tokens"] if summary.allowed_tokens is not None else []
    limits += [f"cost {summary.allowed_money}"] if summary.allowed_money is not None else []
    labels_and_names = (
        (place_words.DAILY_ALLOWANCE_LABEL, limits),
        (place_words.PACKAGES_LABEL, packages),
        (place_words.SKILLS_LABEL, skills),
        (place_words.NETWORK_LABEL, [host.host for host in reach.hosts]),
        (place_words.DATA_LABEL, [f"connections.{offer.name}" for offer in reach.offers]),
        (place_words.TOOLS_LABEL, [f"tools.{server.server}" for server in servers]),
    )
    return [
        Fact(label, quantities.one_line(", ".join(names), _MAX_CHARACTERS))
        for label, names in labels_and_names
        if names
    ]


def describe_network(reach: code_activity.Reach) -> list[Fact]:
    """Describe the hosts and data that code may reach, and its latest queries."""
    data = [Fact(f"connections.{offer.name}", offer.description) for offer in reach.offers]
    data += [
        Fact("Asked", query, outcome)
        for offer in reach.offers
        for query, outcome in offer.recent_queries
    ]
    if not reach.hosts:
        reason = reach.refusal or fact_words.ASK_FOR_HOSTS
        return [Fact("Network", "none", reason), *data]
    facts = [_host_fact(host) for host in reach.hosts]
    traffic = f"{quantities.size(reach.used_bytes)} of {quantities.size(reach.max_bytes)}"
    if reach.grants:
        facts.append(Fact("Allowed until Python restarts", ", ".join(reach.grants)))
    return [*facts, Fact("Exchanged today", traffic), *data]


def _host_fact(host: code_activity.ReachableHost) -> Fact:
    numbers = ", ".join(map(str, host.ports))
    limits = [f"port {numbers}" if len(host.ports) == 1 else f"ports {numbers}"]
    limits += [f"{', '.join(host.methods)} only"] if host.methods else []
    limits += [f"below {', '.join(host.paths)}"] if host.paths else []
    limits += ["each request needs your approval"] if host.needs_approval else []
    note = fact_words.CREDENTIALS_ADDED if host.has_secret else ""
    return Fact(host.host, "; ".join(limits), note)


def describe_tools(servers: Sequence[tool_listings.ServerTools]) -> list[Fact]:
    """Describe the tools of servers that code may call."""
    if not servers:
        return [Fact("Tools", "none", fact_words.ASK_FOR_SERVERS)]
    facts = []
    for server in servers:
        if server.is_logged_in is not None:
            command, state = (
                ("disconnect", "logged in") if server.is_logged_in else ("connect", "not logged in")
            )
            hint = fact_words.own_account(command, server.server)
            facts.append(Fact(f"tools.{server.server}", state, hint))
        for label, names in (
            ("", server.functions_without_approval),
            (", each call needs your approval", server.functions_with_approval),
            (", allowed until Python restarts", server.granted_functions),
        ):
            if names:
                suffix = f" and {len(names) - _MAX_TOOLS} more" if len(names) > _MAX_TOOLS else ""
                facts.append(
                    Fact(f"tools.{server.server}{label}", ", ".join(names[:_MAX_TOOLS]) + suffix)
                )
        if server.off_count:
            label, hint = f"tools.{server.server}, off", fact_words.ASK_TO_ACCEPT
            facts.append(Fact(label, str(server.off_count), hint))
    return facts
