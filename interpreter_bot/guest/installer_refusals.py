"""Programs in place of package installers, which say at once that there is no network.

pip still does what needs no network: it lists packages, and installs a file that a person sent into
a directory. If the environment has another installer, PATH has that one before the replacement.
"""

from __future__ import annotations

import os
import shlex
import sys

_USE_PIP_MAGIC = "ERROR: This program has no network. Use %pip install NAME, on a line of the cell."
_OTHER_INSTALLERS = ("conda", "mamba", "micromamba", "pipenv", "pipx", "poetry", "uv")
# pip starts this program as its Python, with arguments. The program runs the Python that started
# pip, which may be that of an environment that code created.
_PIP_SCRIPT = """#!/bin/sh
python=$(tr '\\0' '\\n' 2>/dev/null <"/proc/$PPID/cmdline" | head -n 1)
# Some sandboxes forbid reading another process's command line.
[ -n "$python" ] || python={python}
{{ output=$("$python" "$@" 2>&1 >&3 3>&-); }} 3>&1
status=$?
case $output in
*"No matching distribution"* | *"Max retries exceeded"* | *"connected to the Internet"* \\
    | *"resolve host"* | *"'--user' install"* \\
    | *"OSError: [Errno 13] Permission denied"*)
    output={sentence} ;;
esac
[ -z "$output" ] || printf '%s\\n' "$output" >&2
exit $status
"""
_OTHER_INSTALLER_SCRIPT = """#!/bin/sh
printf '%s\\n' {sentence} >&2
exit 1
"""


def install(directory: str, packages: list[str], *, can_install: bool) -> dict[str, str]:
    """Write the programs into a directory at the end of PATH.

    Returns:
        Environment variables that configure these programs.
    """
    sentence = shlex.quote(_USE_PIP_MAGIC if can_install else _name_installed_packages(packages))
    os.makedirs(directory, exist_ok=True)
    pip_path = f"{directory}/pip-python"
    scripts = dict.fromkeys(
        (f"{directory}/{name}" for name in _OTHER_INSTALLERS), _OTHER_INSTALLER_SCRIPT
    )
    for path, script in (scripts | {pip_path: _PIP_SCRIPT}).items():
        with open(path, "w") as file:
            file.write(script.format(sentence=sentence, python=shlex.quote(sys.executable)))
        os.chmod(path, 0o555)
    return {
        "PIP_PYTHON": pip_path,
        "PIP_NO_INDEX": "1",
        "PIP_RETRIES": "0",
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_OFFLINE": "1",
        "CONDA_OFFLINE": "true",
    }


def _name_installed_packages(packages: list[str]) -> str:
    installed = ", ".join(packages) or "see `pip list`"
    return (
        f"ERROR: There is no network here, so nothing can be installed; what is there: {installed}."
    )
