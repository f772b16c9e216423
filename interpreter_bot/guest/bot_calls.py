"""Functions that the bot calls in a kernel, under the same names as in its `kernel_calls`.

A function's result is displayed as JSON, unless it is None.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from . import (
    completions,
    data_connection_objects,
    dataframe_displays,
    file_descriptions,
    package_requests,
    picture_scaling,
    proxy_environment,
    snapshot_readers,
    table_files,
    variable_descriptions,
)


def handle_call(shell: Any, name: str, *arguments: Any) -> None:
    result = CALLS[name](shell, *arguments)
    if result is not None:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        shell.display_pub.publish({"application/json": text})


def _describe_files(shell: Any, names: list[str], separator: str) -> None:
    file_descriptions.print_descriptions(_workspace_paths(shell, names), separator)


def _describe_variables(shell: Any) -> list[dict[str, Any]]:
    return variable_descriptions.describe(shell.defined_variables())


def _look_at_table(shell: Any, handle: str, request_json: str) -> str | None:
    return dataframe_displays.view(handle, request_json, shell.execution_count)


def _open_doors(
    shell: Any, proxy_port: int, services_port: int, authority: str, service_kinds: list[str]
) -> None:
    if proxy_port:
        proxy_environment.set_variables(proxy_port=proxy_port, authority=authority)
    if "connections" in service_kinds:
        data_connection_objects.install(shell.user_ns, shell.user_ns_hidden, services_port)


def _open_table(shell: Any, name: str, sheet: str) -> dict[str, Any]:
    (path,) = _workspace_paths(shell, [name])
    return table_files.open_file(path, sheet)


def _refuse_doors(shell: Any, reason: str) -> None:
    data_connection_objects.install(shell.user_ns, shell.user_ns_hidden, 0, refusal=reason)


def _restore_variables(shell: Any, generation: int) -> dict[str, str]:
    return snapshot_readers.restore(shell.user_ns, shell.variables_directory, generation)


def _save_table(shell: Any, handle: str, name: str) -> bool:
    (path,) = _workspace_paths(shell, [name])
    return dataframe_displays.save(handle, path)


def _save_variables(shell: Any, generation: int, seconds: float, max_bytes: int) -> None:
    shell.begin_saving(generation, seconds=seconds, max_bytes=max_bytes)


def _show_scaled(
    shell: Any, names: list[str], contents: list[str], max_side: int, max_bytes: int
) -> None:
    picture_scaling.publish(
        shell, _workspace_paths(shell, names), contents, max_side=max_side, max_bytes=max_bytes
    )


def _use_packages(_: Any, paths: list[str]) -> None:
    package_requests.add_to_path(paths)


def _workspace_paths(shell: Any, names: list[str]) -> list[str]:
    """Return absolute paths of workspace files, as code may have changed the directory."""
    return [os.path.join(shell.kernel.home, name) for name in names]


CALLS: Mapping[str, Callable[..., Any]] = {
    "complete_code": completions.find_in_child,
    "describe_files": _describe_files,
    "describe_variables": _describe_variables,
    "look_at_table": _look_at_table,
    "open_doors": _open_doors,
    "open_table": _open_table,
    "refuse_doors": _refuse_doors,
    "restore_variables": _restore_variables,
    "save_table": _save_table,
    "save_variables": _save_variables,
    "show_scaled": _show_scaled,
    "use_packages": _use_packages,
}
"""By name; each takes the shell, then the parameters of the bot's function."""
