"""What of the page is made of packages is what `make assets` makes of its sources."""

import hashlib
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[3]
ASSETS = ROOT / "assets"
BUILT = ROOT / "interpreter_bot/platforms/web/pages/codemirror.js"
SOURCES = ("build.js", "codemirror.js", "package-lock.json")


def test_codemirror_is_of_the_sources_that_are_here():
    head, _, body = BUILT.read_bytes().partition(b"*/\n")
    told = dict(re.findall(rb"(Sources|Result): ([0-9a-f]{64})", head))
    sources = b"".join((ASSETS / name).read_bytes() for name in SOURCES)
    assert told[b"Sources"].decode() == hashlib.sha256(sources).hexdigest()
    assert told[b"Result"].decode() == hashlib.sha256(body).hexdigest()
    assert b"Permission is hereby granted" in head


def test_its_packages_are_pinned_and_no_address_is_named():
    lock = (ASSETS / "package-lock.json").read_text()
    packages = re.findall(r'"node_modules/[^"]+": \{', lock)
    assert len(packages) == lock.count('"integrity": "sha512-')
    assert "://" not in lock


def test_building_it_anew_gives_the_same(tmp_path):
    if shutil.which("node") is None or not (ASSETS / "node_modules").is_dir():
        pytest.skip("node, or what `make assets` fetches for it, is not on this machine")
    built = tmp_path / "codemirror.js"
    subprocess.run(["node", "build.js", built], cwd=ASSETS, check=True, timeout=60)
    assert built.read_bytes() == BUILT.read_bytes()
