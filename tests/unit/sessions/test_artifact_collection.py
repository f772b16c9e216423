import pytest

from interpreter_bot import events, settings
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.sessions import artifact_collection


@pytest.mark.parametrize("reserve_bytes", [0, 2**60])
@pytest.mark.parametrize("is_copied", [True, False])
async def test_a_disk_that_is_nearly_full_gets_no_copies(tmp_path, reserve_bytes, is_copied):
    limits = settings.Limits(disk_reserve_bytes=reserve_bytes)
    workspace = await workspaces.Workspaces(tmp_path / "workspaces", limits).ensure("web:t")
    mark = await workspace.mark_files()
    (workspace.directory / "made.csv").write_bytes(b"1,2")
    shown = []
    spool = tmp_path / "spool"
    spool.mkdir()
    collector = artifact_collection.ArtifactCollector(
        workspace, emit=shown.append, spool=spool if is_copied else None, limits=limits
    )
    await collector.collect(0, mark)
    if is_copied and reserve_bytes:
        left_out = "made.csv was left out: The machine's disk is nearly full."
        assert shown == [events.NoticeShown(left_out, 0)]
    else:
        assert [event.artifact.name for event in shown] == ["made.csv"]
    copies = [path.read_bytes() for path in spool.iterdir()]
    assert copies == ([b"1,2"] if is_copied and not reserve_bytes else [])
