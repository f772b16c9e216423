"""Private names of ipykernel: all uses are listed, and in one module; the names exist."""

import inspect
import pathlib
import re

from ipykernel import ipkernel

from interpreter_bot import guest

# Private names of ipykernel that `kernel_apps` alone uses; the version is pinned.
USED_NAMES = (
    "_allow_stdin",
    "_execute_sleep",
    "_input_request",
    "_parent_ident",
    "_stderr",
    "_stdout",
    "_supports_kernel_subshells",
)
GUEST = pathlib.Path(guest.__file__).parent
# Private attributes of ipykernel's kernel, which its class or its methods define.
PRIVATE_NAMES = {
    name
    for kind in ipkernel.IPythonKernel.__mro__
    if kind.__module__.startswith("ipykernel.")
    for name in {*vars(kind), *re.findall(r"self\.(\w+)", inspect.getsource(kind))}
    if re.fullmatch(r"_(?!_)\w+", name)
}


def test_the_installed_ipykernel_has_every_name():
    assert set(USED_NAMES) <= PRIVATE_NAMES


def test_every_one_that_is_used_is_listed():
    words = set(re.findall(r"\w+", (GUEST / "kernel_apps.py").read_text()))
    assert words & PRIVATE_NAMES == set(USED_NAMES)


def test_no_other_module_uses_them():
    uses = re.compile(rf"\b({'|'.join(USED_NAMES)})\b")
    users = {path.name for path in GUEST.glob("*.py") if uses.search(path.read_text())}
    assert users == {"kernel_apps.py"}
