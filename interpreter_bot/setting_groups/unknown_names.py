"""Sentences about settings that do not exist, with the name that was probably meant."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping

import pydantic

_WORD_PATTERN = re.compile(r"[a-z0-9]+")
_MIN_LIKENESS = 0.75
# Kubernetes sets such variables in each pod for every service, also if its name has our prefix.
_KUBERNETES_VARIABLE_PATTERN = re.compile(
    r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)=.*"
    r"|(?:\w+_)?PORT=(?:tcp|udp|sctp)://.*"
)


def unknown_setting(name: str, model: type[pydantic.BaseModel]) -> str:
    """Return the sentence that says that a dotted name is no setting of `model`."""
    return (
        f"There is no setting {name}.{_suggest(_without_numbers(name), dotted_names(model), str)}"
    )


def variable_sentences(
    variables: Mapping[str, str], prefix: str, model: type[pydantic.BaseModel]
) -> list[str]:
    """Return a sentence for each environment variable with our prefix that is no setting.

    Pydantic reports only unknown names within a group.

    Args:
        variables: the environment.
        prefix: the prefix of our variables, in upper case.
        model: the settings, whose fields are the groups.
    """
    sentences = []
    for variable, value in sorted(variables.items()):
        name = variable.upper().removeprefix(prefix)
        is_known = name.partition("__")[0].lower() in model.model_fields
        if (
            name == variable.upper()
            or is_known
            or _KUBERNETES_VARIABLE_PATTERN.fullmatch(f"{name}={value}")
        ):
            continue
        hint = _suggest(
            name.lower().replace("_", "."),
            dotted_names(model),
            lambda known: prefix + known.upper().replace(".", "__"),
        )
        sentences.append(f"There is no setting {variable}.{hint}")
    return sentences


def _suggest(name: str, names: Iterable[str], format_name: typing.Callable[[str], str]) -> str:
    """Return the question whether the most similar name was meant; empty if none is similar."""
    names = list(names)
    name_by_words = {
        "".join(_WORD_PATTERN.findall(dotted_name)): dotted_name for dotted_name in names
    }
    similar_names = difflib.get_close_matches(
        "".join(_WORD_PATTERN.findall(name)), name_by_words, n=1, cutoff=_MIN_LIKENESS
    )
    if similar_names:
        return f" Did you mean {format_name(name_by_words[similar_names[0]])}?"
    words = set(_WORD_PATTERN.findall(name))
    names_with_same_end = [
        dotted_name for dotted_name in names if dotted_name.rpartition(".")[2] in words
    ]
    return (
        f" Did you mean {format_name(names_with_same_end[0])}?"
        if len(names_with_same_end) == 1
        else ""
    )


def _without_numbers(name: str) -> str:
    return ".".join(part for part in name.split(".") if not part.isdigit())


def dotted_names(model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[str]:
    """Iterate over the dotted names of all settings and groups, those in lists included."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for group in _groups(field.annotation):
            yield from dotted_names(group, f"{prefix}{name}.")


def _groups(annotation: object) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _groups(argument)
