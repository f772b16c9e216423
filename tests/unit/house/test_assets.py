"""What of the page is made of packages is what `make assets` makes of its sources."""

import hashlib
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[3]
ASSETS = ROOT / "assets"
PAGES = ROOT / "interpreter_bot/platforms/web/pages"
BUILT = ("codemirror.js", "markdown_it.js")


@pytest.mark.parametrize("built", BUILT)
def test_what_is_built_is_of_the_sources_that_are_here(built):
    head, _, body = (PAGES / built).read_bytes().partition(b"*/\n")
    told = dict(re.findall(rb"(Sources|Result): ([0-9a-f]{64})", head))
    sources = b"".join(
        (ASSETS / name).read_bytes() for name in ("build.js", built, "package-lock.json")
    )
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
    subprocess.run(["node", "build.js", tmp_path], cwd=ASSETS, check=True, timeout=60)
    for built in BUILT:
        assert (tmp_path / built).read_bytes() == (PAGES / built).read_bytes()
