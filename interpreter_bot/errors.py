"""Exceptions with a sentence for people.

    BotError
    ├── SettingsError            the configuration cannot be used
    ├── SandboxError             no sandbox, or not as strong as demanded
    ├── KernelError              a kernel could not be had or used
    │   ├── KernelStartError     none could be started
    │   ├── KernelLostError      it died and the request cannot be carried out
    │   ├── PoolFullError        every kernel is busy and no more fit, or are one person's
    │   ├── ExecutionMissingError  what an execution showed is not kept (any more)
    │   └── PackagesError        packages were not installed
    ├── WorkspaceError           a file operation was refused
    │   ├── FileNameError        the name cannot be used
    │   ├── FileTooLargeError    one file is over the limit
    │   ├── WorkspaceFullError   the workspace as a whole is over its limits
    │   └── FileMissingError     no such regular file
    ├── LoginNeededError         a person has no account to do it with, but can log in
    ├── UnansweredError          a person was asked, and did not answer in time
    ├── AnswerRefusedError       an answer came too late, or from somebody else
    ├── StoreError               the database cannot be used, or what was asked for is gone
    └── PlatformLostError        a chat platform cannot be reached, and may be tried again

`str(error)` is the sentence for the person; detail goes to the log and to `__cause__`. The
docstring of each class is its sentence where none is given.
"""

from __future__ import annotations


def missing_extra(subject: str, extra: str) -> str:
    """Return the sentence that says how to install an extra; no index has this project.

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


class KernelLostError(KernelError):
    """Python ended, and its variables are gone."""


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
