"""Installations that code asks for: `%pip install x`, `!pip install x`, `!uv pip install x`.

The bot does it, outside; a directory is there then from which the running kernel imports. Which
packages come from which module names is a guess that is offered and never acted upon: models invent
names, and others register them.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import sys
from typing import Any

_INSTALLERS = ("pip", "conda", "mamba", "micromamba")
_PYTHON = re.compile(r"python[\d.]*")
_PIP = re.compile(r"pip[\d.]*")
# What people write behind a command so that it prints less.
_QUIETED = re.compile(r"(\s*(&?[12]?>>?(?!=)\s*\S+|\|\s*(tail|head|grep|cat)\b[^|;&]*))+\s*$")
_PACKAGES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google.cloud": "google-cloud",
    "igraph": "python-igraph",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "pptx": "python-pptx",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")


def arguments(command: str) -> list[str] | None:
    """Return what stands after `install` in a command that does nothing but install packages."""
    plain = _QUIETED.sub("", command)
    if "\n" in plain.strip() or re.search(r"[;&|`]|\$\(", plain):
        return None
    try:
        words = shlex.split(plain)
    except ValueError:
        return None
    words = _after_program(words)
    while words and words[0].startswith("-"):
        words = words[1:]
    return words[1:] if words[:1] == ["install"] else None


def _after_program(words: list[str]) -> list[str]:
    """Return what stands after the name of a package installer; empty for other programs."""
    program = os.path.basename(words[0]) if words else ""
    if _PYTHON.fullmatch(program) and words[1:3] == ["-m", "pip"]:
        return words[3:]
    if program == "uv" and words[1:2] == ["pip"]:
        return words[2:]
    return words[1:] if _PIP.fullmatch(program) or program in _INSTALLERS else []


def install(kernel: Any, wanted: list[str]) -> bool:
    """Ask the bot for packages and use them; say what came of it. Returns whether it worked.

    Args:
        kernel: whose channel for input the question takes.
        wanted: as after `pip install`.
    """
    parent = kernel.get_parent("shell")
    identity = kernel._parent_ident["shell"]
    answer = json.loads(kernel._input_request({"install": wanted}, identity, parent))
    use(answer["paths"])
    print(answer["said"], file=sys.stderr if answer["has_failed"] else sys.stdout)
    return not answer["has_failed"]


def use(paths: list[str]) -> None:
    """Let imports find what is in these directories, after all that is there already."""
    new = [path for path in paths if path not in sys.path]
    sys.path.extend(new)
    importlib.invalidate_caches()
    programs = [os.path.join(path, "bin") for path in new]
    os.environ["PATH"] = ":".join([os.environ.get("PATH", ""), *programs])


def offer(error: BaseException) -> list[str]:
    """Say how a missing module may be had."""
    if not isinstance(error, ModuleNotFoundError) or not isinstance(error.name, str):
        return []
    module = error.name.partition(".")[0]
    is_known = module in sys.stdlib_module_names or module in sys.modules
    if is_known or not _NAME.fullmatch(module):
        return []
    package = _PACKAGES.get(module, module.replace("_", "-"))
    return [f"It may be installed, if that is the package you mean: %pip install {package}"]
