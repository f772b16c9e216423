"""Guess of the package that contains a module, as only an index could tell. Pure.

A person confirms the guess, because models invent names and attackers register such names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

from packaging import utils

from interpreter_bot import errors
from interpreter_bot.wording import package_words

_PACKAGE_OF_MODULE: Final = {
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
_MODULE_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
# With this minimum, pandsa and pandas are similar; geopandas and pandas, or numpyro and numpy, are
# not.
_MIN_SIMILARITY: Final = 0.8
_MAX_EXTRA_LETTERS: Final = 1


def guess_package(module: str, installed_versions: dict[str, str]) -> str:
    """Return the normalized name of the package that probably has a missing module.

    `module` is a top-level name, perhaps hostile; `installed_versions` are those of the kernel.

    Raises:
        PackagesError: no package can be offered; the message says why.
    """
    if not _MODULE_PATTERN.fullmatch(module):
        raise errors.PackagesError(package_words.NOT_A_MODULE)
    package = utils.canonicalize_name(_PACKAGE_OF_MODULE.get(module, module))
    if package in installed_versions:
        version = installed_versions[package]
        raise errors.PackagesError(package_words.without_module(package, version, module))
    if module not in _PACKAGE_OF_MODULE:
        candidates = [
            name
            for name in installed_versions
            if abs(len(name) - len(package)) <= _MAX_EXTRA_LETTERS
        ]
        for similar_package in difflib.get_close_matches(package, candidates, 1, _MIN_SIMILARITY):
            raise errors.PackagesError(
                package_words.similar_module(module, similar_package, package)
            )
    return package


def is_sure(module: str, package: str, allowed_packages: Collection[str]) -> bool:
    """Return whether the guess needs no confirmation: it is well known, or explicitly allowed."""
    return module in _PACKAGE_OF_MODULE or package in allowed_packages
