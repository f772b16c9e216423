"""What a provisioner must offer beyond jupyter_client's own interface to take the place of ours."""

from __future__ import annotations

import inspect
from importlib import metadata

from jupyter_client import provisioning

from interpreter_bot import errors

_GROUP = "jupyter_client.kernel_provisioners"
_NEEDED = (
    "attach",
    "cpu_seconds",
    "ended",
    "ground",
    "host_uid",
    "last_words",
    "memory_bytes",
    "oom_kills",
    "processes",
)


def check(name: str) -> None:
    """Make sure that a provisioner can be used, before any kernel is wanted.

    Args:
        name: of its entry point, as `kernels.provisioner` says.

    Raises:
        SettingsError: there is none of that name, or it lacks something; the sentence says what.
    """
    found = list(metadata.entry_points(group=_GROUP, name=name))
    if not found:
        raise errors.SettingsError(f"No kernel provisioner called {name} is installed.")
    try:
        kind = found[0].load()
    except (ImportError, AttributeError) as error:
        told = f"The kernel provisioner {name} cannot be loaded: {error}."
        raise errors.SettingsError(told) from error
    if not (isinstance(kind, type) and issubclass(kind, provisioning.KernelProvisionerBase)):
        raise errors.SettingsError(f"{name} is no kernel provisioner of jupyter_client's kind.")
    if missing := [needed for needed in _NEEDED if not _offers(kind, needed)]:
        raise errors.SettingsError(
            f"The kernel provisioner {name} cannot be used: it lacks {', '.join(missing)}. "
            "It must do what ForkProvisioner does."
        )


def _offers(kind: type, name: str) -> bool:
    """Say whether a class has something, or declares that its objects will."""
    declared = (inspect.get_annotations(one) for one in inspect.getmro(kind))
    return hasattr(kind, name) or any(name in names for names in declared)
