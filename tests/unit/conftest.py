"""How Hypothesis is used here, and where files are made."""

import os
import pathlib
import shutil
import tempfile

import hypothesis
import pytest

# What it finds counts, not how long a busy machine took to look.
for name, examples in (("quick", 25), ("thorough", 100)):
    hypothesis.settings.register_profile(
        name,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        max_examples=examples,
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_MEMORY = "/dev/shm"
_ROOM_BYTES = 2 << 30


@pytest.fixture
def tmp_path():
    """A directory in memory, where there is room: on a disk, ten thousand files take seconds."""
    has_room = os.path.isdir(_MEMORY) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    with tempfile.TemporaryDirectory(prefix="unit-", dir=_MEMORY if has_room else None) as place:
        yield pathlib.Path(place)
