"""What people install: from a checkout, or a wheel that they build. No index has this project."""

import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).parents[3]


def test_nothing_asks_to_install_the_name_from_an_index():
    # The checkout may be another user's, as in a container.
    command = ["git", "-c", "safe.directory=*", "ls-files"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    asking = re.compile(r"install[^\n]{0,40}\s['\"]?interpreter[-_]bot\b(?!-|\.toml|/)")
    texts = [
        name for name in listed if name.endswith((".py", ".md", ".toml", ".yml", "Dockerfile"))
    ]
    assert [name for name in texts if asking.search((ROOT / name).read_text("utf-8"))] == []


def test_the_locks_agree_and_name_hashes_but_no_address():
    versions = {}
    paths = [*ROOT.glob("*.lock"), *(ROOT / "interpreter_bot/kernels/libraries").glob("*.lock")]
    assert len(paths) == 5
    for path in paths:
        text = path.read_text("utf-8")
        assert "://" not in text
        for requirement in re.split(r"\n(?=[\w])", text):
            name, version = re.split(r"[ \\;]", requirement, maxsplit=1)[0].split("==")
            assert "--hash=sha256:" in requirement, requirement
            # There may be several, for different Pythons.
            versions.setdefault(name, {}).setdefault(path, set()).add(version)
    for name, by_path in versions.items():
        assert len(set(map(frozenset, by_path.values()))) == 1, name


def test_a_wheel_has_what_an_installed_bot_needs(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = ("manifest.yml", "README.md", "docs/slack.md", "docs/images/page.png")
    for name in (*files, "deploy/interpreter-bot.service", "deploy/docker/README.md"):
        assert f"interpreter_bot/{name}" in names
    assert "interpreter_bot/store/migrations/env.py" in names
    assert "interpreter_bot/kernels/libraries/core.lock" in names
