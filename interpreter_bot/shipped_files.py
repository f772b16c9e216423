"""Paths of files that people read or install: docs, deploy and manifest.yml."""

from __future__ import annotations

import pathlib
from typing import Final

_PACKAGE: Final = pathlib.Path(__file__).parent
ROOT: Final = _PACKAGE if (_PACKAGE / "docs").is_dir() else _PACKAGE.parent
"""In a wheel, the files are inside the package; in a checkout, beside it."""
MANIFEST: Final = ROOT / "manifest.yml"
DEPLOY: Final = ROOT / "deploy"
