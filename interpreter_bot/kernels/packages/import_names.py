"""Which packages modules come from: a guess, since only an index knows the modules of packages.

It is offered to a person, because models invent names, and others register them. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

from packaging import utils

from interpreter_bot import errors
from interpreter_bot.wording import package_words

_KNOWN: Final = {
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
_MODULE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
# As pandsa and pandas are; geopandas and pandas, or numpyro and numpy, are not.
_LIKENESS: Final = 0.8
_MORE_LETTERS: Final = 1


def package_of(module: str, held: dict[str, str]) -> str:
    """Return the package that a missing module probably comes from, as indexes write it.

    Args:
        module: its first name; anybody's.
        held: versions of what is there, by name.

    Raises:
        PackagesError: none can be offered; the sentence says why.
    """
    if not _MODULE.fullmatch(module):
        raise errors.PackagesError(package_words.NOT_A_MODULE)
    package = utils.canonicalize_name(_KNOWN.get(module, module))
    if package in held:
        version = held[package]
        raise errors.PackagesError(package_words.without_module(package, version, module))
    if module not in _KNOWN:
        near = [one for one in held if abs(len(one) - len(package)) <= _MORE_LETTERS]
        for other in difflib.get_close_matches(package, near, 1, _LIKENESS):
            raise errors.PackagesError(package_words.similar(module, other, package))
    return package


def is_sure(module: str, package: str, allowed: Collection[str]) -> bool:
    """Return whether the guess may be acted upon without a person.

    Args:
        module: that is missing.
        package: that it probably comes from.
        allowed: the operator's list, which may name it in full.
    """
    return module in _KNOWN or package in allowed
