"""Exceptions with a sentence for people.

    BotError
    ├── SettingsError            the configuration cannot be used
    ├── SandboxError             no sandbox, or not as strong as demanded
    ├── KernelError              a kernel could not be obtained or used
    │   ├── KernelStartError     none could be started
    │   ├── HostUnusableError    the host that keeps kernels cannot be used
    │   ├── PoolFullError        all kernels are busy, or all that one person may have
    │   ├── ExecutionMissingError  the output of an execution is no longer kept
    │   ├── SessionMovedError    another machine has the session
    │   ├── SessionExistsError   a new session has the key of another one
    │   └── PackagesError        packages were not installed
    ├── WorkspaceError           a file operation was refused
    │   ├── FileNameError        the name cannot be used
    │   ├── FileTooLargeError    one file is over the limit
    │   ├── WorkspaceFullError   the workspace as a whole is over its limits
    │   └── FileMissingError     no such regular file
    ├── LoginNeededError         a person has to log in at a tool server first
    ├── UnansweredError          a person was asked, and did not answer in time
    ├── AnswerRefusedError       an answer came too late, or from somebody else
    ├── StoreError               the database cannot be used, or has no such record
    └── PlatformLostError        a chat platform cannot be reached, and may be tried again

`str(error)` is the sentence for the person; details go to the log and to `__cause__`. Without a
sentence of its own, an error has the docstring of its class.
"""

from __future__ import annotations


def missing_extra(subject: str, extra: str) -> str:
    """Return the sentence that says how to install an extra from a checkout.

    Args:
        subject: what needs it, as the beginning of the sentence.
        extra: its name in pyproject.toml.
    """
    return (
        f"{subject} needs the extra [{extra}], which is not installed. "
        f"In the bot's checkout: pip install '.[{extra}]'."
    )


class BotError(Exception):
    """Something went wrong."""

    def __init__(self, sentence: str | None = None) -> None:
        super().__init__(sentence or (type(self).__doc__ or "").strip())


class SettingsError(BotError):
    """The settings cannot be used."""


class SandboxError(BotError):
    """This machine offers no working sandbox."""


class KernelError(BotError):
    """Python could not be used."""


class KernelStartError(KernelError):
    """Python could not be started. Try again in a minute."""


class HostUnusableError(KernelError):
    """The Python host cannot be used."""


class PoolFullError(KernelError):
    """Python is busy everywhere. Try again in a minute."""


class ExecutionMissingError(KernelError):
    """The output of that code is no longer kept."""


class SessionMovedError(KernelError):
    """This conversation has moved to another machine. Try again."""


class SessionExistsError(KernelError):
    """This conversation already exists."""


class PackagesError(KernelError):
    """The packages could not be installed."""


class WorkspaceError(BotError):
    """The file could not be used."""


class FileNameError(WorkspaceError):
    """That file name cannot be used."""


class FileTooLargeError(WorkspaceError):
    """The file is larger than allowed."""


class WorkspaceFullError(WorkspaceError):
    """The workspace is full. Delete files or reset the session."""


class FileMissingError(WorkspaceError):
    """There is no such file in the workspace."""


class LoginNeededError(BotError):
    """A person has to log in first."""


class UnansweredError(BotError):
    """The code waited for input, and nobody answered."""


class AnswerRefusedError(BotError):
    """This question takes no answer of yours."""


class StoreError(BotError):
    """The conversation cannot be stored right now."""


class PlatformLostError(BotError):
    """A chat platform cannot be reached right now."""
