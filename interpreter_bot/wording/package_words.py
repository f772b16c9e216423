"""Packages that are installed into a session: offers, refusals, and what went wrong."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

NOT_APPROVED: Final = "Nothing was installed, because it was not approved."
NONE_NAMED: Final = "No package was named."
NOT_A_MODULE: Final = "That is not the name of a module."
SESSION_FULL: Final = "Too much was installed in this session. Reset it to install more."
PERSON_FULL: Final = (
    "Your conversations have as many packages as one person may have. Reset one to install more, "
    "or ask whoever runs this bot to raise package_index.cache_bytes."
)
CACHE_FULL: Final = (
    "Packages in use fill the space that is reserved for packages. Ask whoever runs this bot to "
    "raise package_index.cache_bytes."
)
DISK_FULL: Final = "The bot's disk has no space left for packages."
NOT_STORED: Final = "The packages could not be stored. The details are in the bot's log."
NOT_INSTALLED: Final = "The packages could not be installed."
UNPACKED_TOO_LARGE: Final = (
    "These packages take more disk space than is allowed. Ask whoever runs this bot to raise "
    "package_index.cache_bytes."
)
TOO_SLOW: Final = "The installation took too long and was stopped."
DOWNLOAD_TOO_SLOW: Final = "Downloading them took too long."
UNREADABLE: Final = "The package index sent an unreadable answer."
_DOCTOR: Final = "Whoever runs this bot can see why with `interpreter-bot doctor`."
UNTRUSTED: Final = f"The bot does not trust the certificate of the package index. {_DOCTOR}"
NO_PROXY: Final = (
    f"The proxy between the bot and the package index does not let it through. {_DOCTOR}"
)
REFUSED: Final = f"The package index refuses the bot, or does not offer it this package. {_DOCTOR}"
UNKNOWN_HOST: Final = f"The name of the package index is unknown in the bot's network. {_DOCTOR}"
UNREACHABLE: Final = f"The bot cannot connect to the package index. {_DOCTOR}"
INDEX_DOWN: Final = "The package index is not working right now. Try again in a minute."


def package_offer(module: str, package: str) -> str:
    return f"{module} is not installed. The package {package} has it."


def not_approved(package: str) -> str:
    return f"{package} was not installed, because it was not approved."


def install_hint(package: str) -> str:
    return f"If you mean the package {package}, install it: %pip install {package}"


def already_there(packages: str) -> str:
    return f"Already installed: {packages}."


def installing(summary: str) -> str:
    return f"Installing {summary} …\n"


def installed(summary: str) -> str:
    return f"Installed {summary}. Variables are kept."


def packages_missing(reason: str) -> str:
    return f"Some packages that were installed here are missing now: {reason}"


def similar_module(module: str, other: str, package: str) -> str:
    return (
        f"There is no module {module}, but {other} is installed, which is spelled almost the same. "
        f"If you do mean {module}: %pip install {package}"
    )


def without_module(package: str, version: str, module: str) -> str:
    return f"{package} {version} is installed, and has no module {module}."


def not_a_plain_file(name: str) -> str:
    return f"A package was not installed: {name} in it is neither a file nor a directory."


def no_wheel(name: str, version: str) -> str:
    return (
        f"{name} {version} cannot be installed: the package index has no ready-made file of it "
        "for this machine, with a hash to check it by."
    )


def not_replaced(name: str) -> str:
    return f"{name} is already installed and is not replaced."


def not_replaced_while_running(name: str, version: str) -> str:
    return (
        f"{name} {version} is installed and cannot be replaced while Python runs. Ask whoever runs "
        "this bot to install another version for code."
    )


def too_many(count: int, limit: int) -> str:
    return (
        f"This needs {count} packages; at most {limit} can be installed together. Install fewer "
        "at a time."
    )


def download_too_large(size_bytes: int, limit_bytes: int) -> str:
    return (
        f"This would download {quantities.size(size_bytes)}; at most "
        f"{quantities.size(limit_bytes)} can be downloaded together."
    )


def not_allowed(name: str, setting: str) -> str:
    return (
        f"The package {name} may not be installed here. Ask whoever runs this bot to change "
        f"{setting}."
    )


def pip_option(name: str) -> str:
    return (
        f"The pip option {name} cannot be used here. Write names of packages, with versions if you "
        "like."
    )


def not_from_index(name: str) -> str:
    return (
        f"{name} cannot be installed: packages come only from the package index, by their names. "
        "Whoever runs this bot chooses that index (package_index.url)."
    )


def too_many_named(limit: int) -> str:
    return f"At most {limit} packages can be named at a time."


def not_a_name(text: str) -> str:
    return f"{text} is not the name of a package."


def too_long(text: str) -> str:
    return f"{text} is too long."


def condition_refused(text: str) -> str:
    return f"{text}: conditions such as `; python_version` cannot be used here."
