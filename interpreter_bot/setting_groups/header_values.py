"""Checks of keys, tokens and addresses, which people paste with something extra.

A sentence never repeats a value, which may be a secret.
"""

from __future__ import annotations

import re
import string
import unicodedata
import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import pydantic
import pydantic_core

# SDKs read these variables, too, and send them as headers.
_KEY_VARIABLES: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_HEADER_VARIABLES: Final = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
_ADDRESS_VARIABLES: Final = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")
_QUOTE_CHARACTERS: Final = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_AUTH_SCHEME_PATTERN: Final = re.compile(
    r"(?:Bearer|Basic|Token|Bot)\s|Authorization:|x-api-key:", re.IGNORECASE
)
_ASSIGNMENT_PATTERN: Final = re.compile(r"(?:export\s+)?[A-Z][A-Z0-9_]{2,}=")
_MASKED_VALUE_PATTERN: Final = re.compile(r"\*{3,}|\.{3,}|^<.*>$|^\$\{?\w+\}?$")


class VariableError(ValueError):
    """A setting names an environment variable that is not set; the message says which."""


def fill_variables(text: str, environment: Mapping[str, str]) -> str:
    """Replace each `${NAME}` by the environment's variable.

    Raises:
        VariableError: there is none.
    """
    try:
        return string.Template(text).substitute(environment)
    except KeyError as error:
        raise VariableError(f"{error.args[0]} is not set") from None
    except ValueError:
        raise VariableError("a `$` has no variable's name after it") from None


def key_fault(value: str) -> str:
    """Return what is wrong with a key or token, after its name; empty if nothing is."""
    if fault := header_fault(value):
        return fault
    if match := _AUTH_SCHEME_PATTERN.match(value):
        return f"begins with {match[0].strip()!r}; give the key alone"
    if _ASSIGNMENT_PATTERN.match(value):
        return "holds the name of a variable as well; give the key alone"
    if re.search(r"\s", value):
        return "has a space in it; copy the key again"
    if _MASKED_VALUE_PATTERN.search(value):
        return "is a placeholder or was copied from a masked display; copy the key itself"
    return ""


def header_fault(value: str) -> str:
    """Return what is wrong with a value that goes into a header; empty if nothing is."""
    if value != value.strip():
        return "has a space or a line break at its beginning or end; remove it"
    if value[:1] and value[0] in _QUOTE_CHARACTERS and value[-1] in _QUOTE_CHARACTERS:
        return "has quotes around it; remove them"
    for character in value:
        if character in "\r\n":
            return "has a line break in it; copy it again"
        if not " " <= character <= "~":
            name = unicodedata.name(character, f"U+{ord(character):04X}").lower()
            return f"has a character that cannot be sent ({name}); copy it again, unmasked"
    return ""


def address_fault(value: str) -> str:
    """Return what is wrong with the address of a server; empty if nothing is."""
    if fault := header_fault(value):
        return fault
    if " " in value:
        return "has a space in it; remove it"
    try:
        address = urllib.parse.urlsplit(value)
        is_complete = address.scheme in ("http", "https") and bool(address.hostname)
        is_complete = is_complete and (address.port is None or address.port > 0)
    except ValueError:
        is_complete = False
    return (
        ""
        if is_complete
        else "has to begin with http:// or https://, such as http://127.0.0.1:11434/v1"
    )


def variable_sentences(
    environment: Mapping[str, str], key_variables: tuple[str, ...] = ()
) -> list[str]:
    """Return a sentence for each variable with a key, a header or an address that is unusable.

    Args:
        environment: the variables.
        key_variables: names of variables that hold keys, besides the usual ones.
    """
    checks = dict.fromkeys((*_KEY_VARIABLES, *key_variables), key_fault)
    checks |= dict.fromkeys(_HEADER_VARIABLES, header_fault) | dict.fromkeys(
        _ADDRESS_VARIABLES, address_fault
    )
    return [
        f"{name} cannot be used: it {fault}."
        for name, check in checks.items()
        if (value := environment.get(name)) and (fault := check(value))
    ]


def _check_key(secret: pydantic.SecretStr) -> pydantic.SecretStr:
    if fault := key_fault(secret.get_secret_value()):
        raise pydantic_core.PydanticCustomError("key", "it {fault}", {"fault": fault})
    return secret


def _check_address(address: str) -> str:
    if fault := address_fault(address):
        raise pydantic_core.PydanticCustomError("address", "it {fault}", {"fault": fault})
    return address


Token: TypeAlias = Annotated[pydantic.SecretStr, pydantic.AfterValidator(_check_key)]
"""A token or key that is sent in a header; may be empty."""
Address: TypeAlias = Annotated[str, pydantic.AfterValidator(_check_address)]
"""The address of a server, over HTTP."""
