"""The new root of the fork server: an empty tmpfs with an allow-list of visible paths.

It is built once per fork server, and every kernel gets a copy of the mount namespace. Directories
above an allowed path are created empty. So an environment may be below a home that is closed to
others, and its neighbours stay invisible. `HOST` is for the set-up of kernels only; it is detached
before user code runs.
"""

from __future__ import annotations

import glob
import os
import pathlib
import sys

from . import syscalls

HOST = "/.host"
WORKSPACES = HOST + "/workspaces"
HOST_PROC = HOST + "/proc"
GUEST = HOST + "/guest"
DATA = "/mnt/data"
VARIABLES = "/var/lib/variables"
SKILLS = "/skills"
SKILL_MODULES = SKILLS + "/.python"
TOOLS = "/opt/bin"
LAYERS = "/opt/packages"
HOME = "/tmp/home"
# The mounts show this file, but Landlock forbids it: a process that can read it lacks Landlock.
CANARY = HOST + "/canary"

_SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_CONFIGURATION_PATHS = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/mime.types",
)
_DEVICES = {
    "null": "null",
    # Mapping the host's /dev/zero would give shared memory of any size. /dev/full also reads as
    # zeros, and cannot be mapped.
    "zero": "full",
    "full": "full",
    "random": "random",
    "urandom": "urandom",
}
_FILE_TEXTS = {
    "/etc/passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
    f"sandbox:x:1000:1000:sandbox:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    "/etc/hostname": "sandbox\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
}

READABLE_PATHS = (*_SYSTEM_DIRECTORIES, "/etc", "/proc", "/sys", "/var", SKILLS, TOOLS, LAYERS)
"""Paths that every kernel may read, besides its Python and its own files."""

WRITABLE_PATHS = (os.path.dirname(DATA), os.path.dirname(VARIABLES), "/tmp", "/dev/shm")
"""Paths that every kernel may write to; a session's directories are mounted below the first two."""


def device_paths() -> list[str]:
    """List the device files of the new root."""
    return [f"/dev/{name}" for name in _DEVICES]


class MountTrees:
    """Mount trees cloned from the host, opened while its paths can still be reached."""

    def __init__(
        self,
        readable_paths: list[str],
        hidden_paths: list[str],
        workspaces_directory: str,
        *,
        skills_directory: str,
        layers_directory: str,
    ) -> None:
        """Open everything that the new root will show.

        Args:
            readable_paths: paths shown read-only at the same path, besides the system's.
            hidden_paths: directories below these that will look empty, such as the bot's package.
            workspaces_directory: all workspaces, on the host; may be empty.
            layers_directory: installed packages, on the host; may be empty.
            skills_directory: the operator's skills, on the host, to which more may be added later;
                may be empty.

        Raises:
            OSError: a path cannot be reached, or the machine forbids mounting.
        """
        self._links: dict[str, str] = {}
        self._readable_trees: dict[str, int] = {}
        self._directories: set[str] = set()
        for path in (*_SYSTEM_DIRECTORIES, *_CONFIGURATION_PATHS, *readable_paths):
            if os.path.islink(path):
                self._links[path] = os.readlink(path)
            elif os.path.exists(path) and not self._is_covered(path):
                self._readable_trees[path] = syscalls.open_tree(path)
                if os.path.isdir(path):
                    self._directories.add(path)
        self._device_trees = {
            name: syscalls.open_tree(f"/dev/{source}") for name, source in _DEVICES.items()
        }
        self._workspaces_tree = (
            syscalls.open_tree(workspaces_directory) if workspaces_directory else -1
        )
        self._layers_tree = syscalls.open_tree(layers_directory) if layers_directory else -1
        self._skills_tree = syscalls.open_tree(skills_directory) if skills_directory else -1
        # By the real path, because the path of this import goes through a descriptor of the former
        # mount namespace.
        self._guest_tree = syscalls.open_tree(os.path.dirname(os.path.realpath(__file__)))
        # Linux allows mounting a new /proc only while an unmasked one is visible.
        self._proc_tree = syscalls.open_tree("/proc")
        self._hidden_paths = [
            path for path in hidden_paths if os.path.isdir(path) and self._is_covered(path)
        ]

    def _is_covered(self, path: str) -> bool:
        return any(
            pathlib.PurePath(path).is_relative_to(path_shown) for path_shown in self._readable_trees
        )

    def enter(self, *, visible_cores: int) -> None:
        """Build the root, move into it and detach the host's."""
        root = "/tmp"
        syscalls.mount("root", root, "tmpfs", syscalls.MS_NOSUID, "size=16m,mode=0755")
        os.chdir(root)
        optional_trees = {SKILLS: self._skills_tree, LAYERS: self._layers_tree}
        trees = self._readable_trees | {
            path: tree for path, tree in optional_trees.items() if tree >= 0
        }
        for path, tree in trees.items():
            flags = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
            syscalls.set_mount_flags(tree, flags | syscalls.MOUNT_ATTR_NODEV)
            is_directory = path in {SKILLS, LAYERS, *self._directories}
            attach(tree, root + path, is_directory=is_directory)
        for path, target in self._links.items():
            _link(target, root + path)
        for path in self._hidden_paths:
            syscalls.mount("hidden", root + path, "tmpfs", syscalls.MS_RDONLY, "size=4k,mode=0755")
        for name, tree in self._device_trees.items():
            attach(tree, f"{root}/dev/{name}", is_directory=False)
        os.makedirs(root + HOST)
        with open(root + CANARY, "w") as file:
            file.write("canary\n")
        syscalls.mount("host", root + HOST, "tmpfs", syscalls.MS_NOSUID, "size=16k,mode=0755")
        attach(self._guest_tree, root + GUEST, is_directory=True)
        if self._workspaces_tree >= 0:
            attach(self._workspaces_tree, root + WORKSPACES, is_directory=True)
        attach(self._proc_tree, root + HOST_PROC, is_directory=True)
        _create_remaining_files(root, visible_cores=visible_cores)
        link_ffmpeg(TOOLS, root)
        syscalls.pivot_root(root)
        syscalls.mount(HOST_PROC, "/proc", None, syscalls.MS_BIND | syscalls.MS_REC)

    def mount_temporary(self) -> None:
        """Mount a /tmp, after all mounts in the environment, which may be below it."""
        mount_temporary(list(self._readable_trees), "size=64m")
        os.makedirs(HOME)


def mount_temporary(readable_paths: list[str], options: str) -> None:
    """Mount a new /tmp over the present one, but keep environments below it visible."""
    nested_paths = [
        path for path in readable_paths if pathlib.PurePath(path).is_relative_to("/tmp")
    ]
    trees = {path: (syscalls.open_tree(path), os.path.isdir(path)) for path in nested_paths}
    syscalls.mount("tmp", "/tmp", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    for path, (tree, is_directory) in trees.items():
        attach(tree, path, is_directory=is_directory)
    # Directories between /tmp and an environment are in the new /tmp, but must not be writable.
    for parent in {os.path.dirname(path) for path in nested_paths} - {"/tmp"}:
        tree = syscalls.open_tree(parent)
        flags = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
        syscalls.set_mount_flags(tree, flags | syscalls.MOUNT_ATTR_NODEV)
        attach(tree, parent, is_directory=True)


def cover_uv() -> None:
    """Cover the environment's uv by the program that explains how to install packages."""
    read_only = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY
    for name in ("uv", "uvx"):
        path = os.path.join(os.path.dirname(sys.executable), name)
        if os.path.isfile(path):
            syscalls.mount(f"{TOOLS}/uv", path, None, syscalls.MS_BIND)
            syscalls.mount(None, path, None, read_only | syscalls.MS_NOSUID | syscalls.MS_NODEV)


def seal() -> None:
    """Make the root itself read-only, after all additions."""
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY
    syscalls.mount(None, "/", None, flags | syscalls.MS_NOSUID | syscalls.MS_NODEV)


def attach(tree: int, target: str, *, is_directory: bool) -> None:
    """Attach a tree at a path, which is created if it is missing."""
    if is_directory:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    syscalls.move_mount(tree, target)
    os.close(tree)


def _link(target: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


def link_ffmpeg(tools_directory: str, root: str = "") -> None:
    """Link a package's ffmpeg into the last directory of PATH, so that a system's is preferred."""
    for entry in sys.path:
        for program in glob.glob(f"{glob.escape(root + entry)}/imageio_ffmpeg/binaries/ffmpeg-*"):
            _link(program.removeprefix(root), f"{root}{tools_directory}/ffmpeg")
            return


def _create_remaining_files(root: str, *, visible_cores: int) -> None:
    """Create the directories and small files that do not come from the host."""
    for path in (
        DATA,
        VARIABLES,
        "/proc",
        "/tmp",
        "/dev/shm",
        "/run",
        "/var/tmp",
        "/sys/devices/system/cpu",
    ):
        os.makedirs(root + path, exist_ok=True)
    os.symlink("/usr/share/zoneinfo/UTC", root + "/etc/localtime")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + target, f"{root}/dev/{name}")
    core_range = f"0-{visible_cores - 1}\n" if visible_cores > 1 else "0\n"
    processors = {f"/sys/devices/system/cpu/{name}": core_range for name in ("online", "possible")}
    # The host's name has an address, too, because many programs look it up. It may be the
    # machine's name, if it could not be changed.
    hosts = {"/etc/hosts": f"127.0.0.1 localhost {os.uname().nodename}\n::1 localhost\n"}
    for path, text in (_FILE_TEXTS | hosts | processors).items():
        with open(root + path, "w") as file:
            file.write(text)
