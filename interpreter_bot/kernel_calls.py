"""The code that the bot itself runs in a kernel: one function per call returns it.

`guest.bot_calls` answers the calls, by functions of the same names. A call shows a display of JSON,
unless its function says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence


def complete_code(code: str) -> str:
    """Show completions of code that ends at the cursor."""
    return _format_call("complete_code", code)


def describe_files(names: Sequence[str], separator: str) -> str:
    """Print descriptions of files, each after the separator and its number."""
    return _format_call("describe_files", list(names), separator)


def describe_variables() -> str:
    """Show descriptions of all variables."""
    return _format_call("describe_variables")


def look_at_table(handle: str, request_json: str) -> str:
    """Show a part of a displayed table, or nothing if it no longer exists."""
    return _format_call("look_at_table", handle, request_json)


def open_doors(
    *, proxy_port: int, services_port: int, authority: str, service_kinds: Sequence[str]
) -> str:
    """Make the bot's doors known to code.

    Args:
        proxy_port: 0 if nothing outside may be reached.
        services_port: port of the services.
        authority: certificate of the authority that signs the proxy's certificates.
        service_kinds: kinds of services that the bot offers.
    """
    return _format_call("open_doors", proxy_port, services_port, authority, list(service_kinds))


def open_table(name: str, sheet: str) -> str:
    """Read a file as a table, and show its description."""
    return _format_call("open_table", name, sheet)


def refuse_doors(reason: str) -> str:
    """Let uses of data connections fail, with the reason why there are none."""
    return _format_call("refuse_doors", reason)


def restore_variables(generation: int) -> str:
    """Restore a generation of saved variables, and show which failed."""
    return _format_call("restore_variables", generation)


def save_table(handle: str, name: str) -> str:
    """Write a whole displayed table into a file, and show whether it still existed."""
    return _format_call("save_table", handle, name)


def save_variables(generation: int, *, seconds: float, max_bytes: int) -> str:
    """Begin to save all variables as a new generation.

    Args:
        generation: its number.
        seconds: time for trying variables.
        max_bytes: largest size of the generation.
    """
    return _format_call("save_variables", generation, seconds, max_bytes)


def show_scaled(
    names: Sequence[str], contents: Sequence[str], *, max_side: int, max_bytes: int
) -> str:
    """Display pictures scaled down for a model: files, and others in base64."""
    return _format_call("show_scaled", list(names), list(contents), max_side, max_bytes)


def use_packages(paths: Sequence[str]) -> str:
    """Let imports find packages of the session."""
    return _format_call("use_packages", list(paths))


def _format_call(name: str, *arguments: object) -> str:
    return f"get_ipython().answer_bot{(name, *arguments)!r}"
