"""Where Python runs: hosts and their certificates, directories, the sandbox, shared files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interpreter_bot import errors
from interpreter_bot.wording import run_words

# The host, and the way to it.
UNREACHABLE: Final = "The Python host cannot be reached right now. Try again in a minute."
NOT_ANSWERING: Final = "The Python host does not answer. Try again in a minute."
UNREADABLE_MESSAGE: Final = "The Python host sent an unreadable message. Try again."
HOST_FAULT: Final = "Something went wrong in the Python host. The details are in its log."
HOST_ENDED: Final = f"The Python host ended. {run_words.VARIABLES_LOST}"
CONNECTION_LOST: Final = f"The connection to the Python host was lost. {run_words.VARIABLES_LOST}"
NOT_STARTED: Final = "The Python host did not start. The reason is in its log."
HOST_OF_OTHER_RELEASE: Final = (
    "The Python host is of another release, which this bot does not understand. To end it, run "
    "`interpreter-bot host drain`."
)
HOST_OF_OTHER_USER: Final = "The Python host belongs to another user."
OWNER_UNKNOWN: Final = "The bot cannot tell which user runs the Python host."
NO_MACHINE: Final = "No machine that runs Python can be reached right now."
KERNEL_GONE: Final = "The Python that was to run this code has ended."
CODE_TOO_LONG: Final = "This code is too long to be sent to Python. Put large data into a file."
ANSWER_TOO_LONG: Final = "This answer is too long to be sent to Python."
HOST_DRAINS: Final = (
    "Python cannot be started right now, because its host is being replaced. Try again."
)
DRAIN_STARTED: Final = "The host starts no more Pythons, and ends when the last one has ended.\n"
NO_HOST_RUNNING: Final = "No Python host can be reached."

# Sessions that move between machines, and the files that machines share.
SESSION_MOVED: Final = "This conversation moved to another machine."
NO_SHARED_STORE: Final = "Sessions can move only between hosts that share a store (host.store)."
NOT_ARCHIVED: Final = (
    "The session was not moved, because its files and variables were not archived."
)
STORE_NEEDS_SNAPSHOTS: Final = "host.store shares what is saved, so snapshots.bytes must not be 0."
STORE_NEEDS_FLEET: Final = (
    "host.store keeps no conversation of this bot, because host.fleet is empty. List its "
    "hosts there, even a single one."
)
NO_STORE_LIBRARY: Final = errors.missing_extra("host.store", "data")
STORE_DOWN: Final = "The machines' shared store cannot be used right now. Try again in a minute."
STORE_DAMAGED: Final = "The shared copy of this conversation's files is damaged."
STORE_UNSIGNED: Final = "The shared copy of this conversation's files is not signed by a host."
STORE_HAS_OTHER_KEY: Final = (
    "The shared store (host.store) is signed with another key than this data directory. To use the "
    "store's key, move the file snapshot-key out of the data directory; what is saved there is "
    "then lost."
)
NO_ROOM_FOR_FILES: Final = (
    "The machine's disk is too full to bring this conversation's files here. Try again later."
)
OUTPUT_TOO_LARGE: Final = "An output was too large to be kept."

# Doors: connections of code to the outside, which a host passes on to its bot.
NO_DOORS: Final = "This Python cannot connect to anything outside."
DOORS_BROKEN: Final = (
    "Code cannot use data connections or the hosts of `egress` here. `interpreter-bot doctor` says "
    "why."
)
NOT_CONNECTED: Final = (
    "The bot that connects code to the outside is not there right now, or code of this "
    "conversation may no longer connect."
)

# TLS between bots and hosts.
FLEET_NEEDS_TLS: Final = (
    "host.fleet needs host.tls, a directory that `interpreter-bot host certificate --bot` makes."
)
LISTEN_NEEDS_TLS: Final = (
    "host.listen needs host.tls, a directory that `interpreter-bot host certificate` makes."
)
NO_HOST_NAME: Final = "Name the host as bots address it, or --bot and the bot's name."
NOT_TRUSTED: Final = "it does not trust this bot's certificate, or it is ending"
CERTIFICATE_UNREADABLE: Final = "this bot's certificate can no longer be read"
CERTIFICATE_OF_OTHERS: Final = "this bot's certificate was not issued by the authority beside it"
CERTIFICATE_EXPIRED: Final = "this bot's certificate has expired"
CERTIFICATE_OF_HOST: Final = "this bot's certificate is not one for a bot"
_CERTIFICATE_FLAWS: Final[Mapping[int, str]] = {
    9: "is not valid yet, or a clock is wrong",
    10: "has expired",
    26: "is not one for a host",
    62: "is for another name",
    64: "is for another address",
}
"""By OpenSSL's code of a refused certificate."""

# The sandbox, and libraries for code.
SEE_DOCTOR: Final = " Run `interpreter-bot doctor` to see why."
NO_FILES: Final = "The session's files cannot be used."
NO_PACKAGES: Final = "The directory of packages cannot be used."
BAD_USER_IDS: Final = "The user ids granted to the bot cannot be used."
FORK_SERVER_SLOW: Final = "Python was not ready in time. Try again in a minute."
FORK_SERVER_CONFUSED: Final = (
    "Python could not be started: the fork server sent an unexpected answer."
)
FORK_SERVER_DOWN: Final = "Python could not be started: the fork server is not running. Try again."
FORK_SERVER_ENDED: Final = "Python could not be started: the fork server ended."
FILES_SLOW: Final = "The session's files could not be attached in time. Try again in a minute."
LIBRARIES_OUTDATED: Final = (
    "The libraries for code are older than this bot. Run `interpreter-bot libraries`."
)
LIBRARIES_FAILED: Final = "The libraries could not be installed.\n"

# Hosts on the nodes of a Ray cluster.
NO_RAY: Final = errors.missing_extra("`fleet`", "cluster")
NODES_NEED_TLS: Final = (
    "Set INTERPRETER_BOT_HOST__LISTEN and INTERPRETER_BOT_HOST__TLS on each node of the cluster."
)

# Help of the metrics.
MEMORY_HELP: Final = "Memory that the host and its sessions may use."
FREE_MEMORY_HELP: Final = "Memory that is free for sessions."
USED_RATIO_HELP: Final = "How full the host is, from 0 to 1; 1 also if it is draining."
DRAINING_HELP: Final = (
    "1 if the host is draining: it takes no sessions, and ends with the last one."
)


def current_number_help(things: str) -> str:
    return f"The current number of {things}."


def not_reached(path: object) -> str:
    return f"No Python host can be reached at {path}."


def no_service_host(path: object) -> str:
    return (
        f"{not_reached(path)} Start one with `interpreter-bot host` and the same settings, or let "
        'the bot start its own: host.mode = "own".'
    )


def outputs_missing(count: int) -> str:
    return f"{count:,} outputs are missing here: there were more than are kept."


def no_certificate(file: object, reason: object) -> str:
    return f"{file} cannot be read: {reason}. Make it with `interpreter-bot host certificate`."


def key_of_other_certificate(directory: object) -> str:
    return f"The key in {directory}/tls.key does not belong to the certificate in tls.crt."


def not_certificates(directory: object) -> str:
    return f"{directory} holds other files than a certificate, its key and an authority."


def refused_certificate(address: object, code: int) -> str:
    flaw = _CERTIFICATE_FLAWS.get(code, "was not issued by the authority that this bot trusts")
    return f"The certificate of the host at {address} {flaw}."


def no_tls(address: object) -> str:
    return f"The server at {address} does not speak TLS as a host does."


def not_an_address(text: str) -> str:
    return f"{text!r} is not an address such as host-1.example:7443."


def not_an_authority(directory: object) -> str:
    return f"{directory} holds other files than those of a certificate authority."


def not_an_authority_key(file: object) -> str:
    return f"{file} is not the key of a certificate authority."


def not_a_name(name: str) -> str:
    return f"{name!r} is not the name of a host or a bot."


def bad_days(limit: int) -> str:
    return f"A certificate is valid for 1 to {limit} days."


def connection_closed(address: object, reason: str) -> str:
    return f"The host at {address} closed the connection: {reason}."


def without_doors(address: object) -> str:
    return (
        f"The host at {address} has no doors for `egress` and `connections`. Start it with "
        "INTERPRETER_BOT_KERNELS__DOORS=true. If it was started so, run `interpreter-bot doctor` "
        "there."
    )


def copied_directory(address: object, other_address: object) -> str:
    return (
        f"The data directories of the hosts at {address} and {other_address} have the same "
        "`host.id`, so one is a copy of the other. End the host of the copy, delete `host.id` in "
        "its data directory, and start it again."
    )


def cannot_listen(address: object, reason: object, setting: str) -> str:
    return f"The host cannot listen at {address} ({setting}): {reason}."


def too_large_to_share(name: str) -> str:
    return f"A file of this conversation is too large to share between machines: {name}."


def store_refuses(code: str) -> str:
    """Return that a bucket refuses a machine; the code may be empty."""
    return (
        f"The shared store (host.store) refuses this machine{f' ({code})' if code else ''}. Ask "
        "whoever runs it to check bucket, login, region and clock."
    )


def bad_store(reason: object) -> str:
    return f"host.store cannot be used: {reason}"


def unusable_directory(directory: object, reason: object) -> str:
    return f"The directory {directory} cannot be used: {reason}."


def not_a_directory(path: object) -> str:
    return f"{path} is a link or a file, not a directory."


def owned_by_other_user(path: object) -> str:
    return f"{path} belongs to another user."


def writable_by_others(directory: object) -> str:
    return f"Other users can write to {directory}. Run chmod go-w on it."


def too_long_for_sockets(path: object) -> str:
    return f"The path {path} is too long for sockets. Set paths.runtime to a shorter one."


def data_unusable(directory: object) -> str:
    return f"The data directory {directory} cannot be used."


def data_not_writable(directory: object) -> str:
    return f"The bot cannot write to the data directory {directory}."


def no_sandbox(reason: object) -> str:
    return f"The sandbox cannot be built here: {reason}.{SEE_DOCTOR}"


def this_machine_has(reason: str) -> str:
    return f"This machine has {reason}."


def no_user_ids(first_uid: int) -> str:
    return (
        f"The user ids from {first_uid} on cannot be given to kernels here. Start the bot as "
        "another user, or set sandbox.first_uid."
    )


def python_unusable(python: object) -> str:
    return f"The kernels' Python, {python}, cannot be run."


def readable_by_code(path: object, tree: object) -> str:
    return (
        f"{path} lies in {tree}, which code can read. Move it elsewhere, or give kernels another "
        "Python (kernels.python)."
    )


def no_kernel_python(place: object) -> str:
    return (
        f"The Python for code is not installed yet ({place}). Run `interpreter-bot libraries`, or "
        "set kernels.python."
    )


def libraries_failed(reason: object) -> str:
    return (
        f"The libraries for code could not be installed: {reason}. Try `interpreter-bot libraries` "
        "again, or set kernels.python to a Python that has ipykernel and cloudpickle."
    )


def installing_libraries(count: int) -> str:
    return f"Installing {count} libraries for code…\n"


def libraries_installed(seconds: float) -> str:
    return f"Installed them in {seconds:.0f} s.\n"


def libraries_present(count: int) -> str:
    return f"The {count} libraries for code are installed.\n"


def no_ray_cluster(address: str, reason: str) -> str:
    return f"There is no Ray cluster at {address}: {reason}."


def node_host_not_started(log: object) -> str:
    return f"The host of this node did not start. The reason is in its log, {log}."
