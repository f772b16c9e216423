import io

import pytest

from interpreter_bot import events, settings
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.sessions import artifact_collection


class Spool(io.BytesIO):
    is_complete = False

    def complete(self):
        self.is_complete = True


@pytest.mark.parametrize("reserve_bytes", [0, 2**60])
@pytest.mark.parametrize("spool", [Spool, lambda: None], ids=["copied", "left"])
async def test_a_disk_that_is_nearly_full_gets_no_copies(tmp_path, reserve_bytes, spool):
    limits = settings.Limits(disk_reserve_bytes=reserve_bytes)
    workspace = await workspaces.Workspaces(tmp_path, limits).ensure("web:t")
    mark = await workspace.mark_files()
    (workspace.directory / "made.csv").write_bytes(b"1,2")
    shown = []
    # A platform that copies files, or one that leaves them where they are.
    copy = spool()
    collector = artifact_collection.ArtifactCollector(
        workspace, emit=shown.append, save=lambda name: copy, limits=limits
    )
    await collector.collect(0, mark)
    if copy is None or not reserve_bytes:
        assert [event.artifact.name for event in shown] == ["made.csv"]
    else:
        left_out = "made.csv was left out: The machine's disk is nearly full."
        assert shown == [events.NoticeShown(left_out, 0)]
        assert not copy.is_complete
        assert copy.closed
