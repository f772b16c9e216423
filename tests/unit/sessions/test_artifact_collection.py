import io

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.sessions import artifact_collection


class Spool(io.BytesIO):
    is_complete = False

    def complete(self):
        self.is_complete = True


class Sink:
    """A platform that copies files, or one that leaves them where they are."""

    def __init__(self, spool):
        self.spool = spool
        self.artifacts = []
        self.told = []

    def save(self, cell, name):
        return self.spool

    def artifact(self, cell, artifact):
        self.artifacts.append(artifact.name)

    def announcement(self, cell, text):
        self.told.append(text)


@pytest.mark.parametrize("reserve_bytes", [0, 2**60])
@pytest.mark.parametrize("spool", [Spool, lambda: None], ids=["copied", "left"])
async def test_a_disk_that_is_nearly_full_gets_no_copies(tmp_path, reserve_bytes, spool):
    limits = settings.Limits(disk_reserve_bytes=reserve_bytes)
    workspace = await workspaces.Workspaces(tmp_path, limits).of("web:t")
    mark = await workspace.mark()
    (workspace.directory / "made.csv").write_bytes(b"1,2")
    sink = Sink(spool())
    collector = artifact_collection.ArtifactCollector(workspace, sink, limits=limits)
    await collector.collect(0, mark)
    if sink.spool is None or not reserve_bytes:
        assert (sink.artifacts, sink.told) == (["made.csv"], [])
    else:
        assert sink.artifacts == []
        assert sink.told == ["made.csv was left out: The machine's disk is nearly full."]
        assert not sink.spool.is_complete
        assert sink.spool.closed
