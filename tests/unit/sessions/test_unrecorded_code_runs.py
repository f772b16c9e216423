"""What happens to cells, one after the other, and who is told."""

import asyncio
import hashlib

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.hosts import local_host
from interpreter_bot.sessions import unrecorded_code_runs
from interpreter_bot.wording import run_words
from tests.fakes import code_replies, pools
from tests.fakes.pools import Step

CRASHED = values.Finished(values.Ending.CRASHED, 0.1, "It crashed.", kernel_lost=True)
FAILED = values.Finished(values.Ending.ERROR, 0.1)


@pytest.fixture
def pool_of(tmp_path):
    """Make pools that are checked in the end."""
    made = []

    def make(*steps, **options):
        made.append(pools.Pool(tmp_path / "workspaces", *steps, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def session_of(pool, audience, **limits):
    return unrecorded_code_runs.UnrecordedCodeRun(
        *(local_host.LocalHost(pool), "key"),
        limits=settings.Limits(**limits),
        reply=audience,
        all_questions=audience.questions,
        on_installation=lambda *_: pytest.fail("nothing is installed here"),
    )


async def chunks(*pieces):
    for piece in pieces:
        yield piece


async def test_cells_run_in_order_in_one_kernel(pool_of):
    shown = values.Text("stdout", "x\n")
    pool = pool_of(Step("a", outputs=(shown,)), Step("b"))
    audience = code_replies.CodeReply()
    assert await session_of(pool, audience).run(["a", "b"])
    assert pool.started == 1
    assert audience.received == [
        (0, "output", shown),
        (0, "finished", pools.OK),
        (1, "finished", pools.OK),
    ]


async def test_a_failed_cell_does_not_keep_the_next_from_running(pool_of):
    pool = pool_of(Step("a", FAILED), Step("b"))
    audience = code_replies.CodeReply()
    assert not await session_of(pool, audience).run(["a", "b"])
    assert audience.endings == ["error", "ok"]
    assert pool.started == 1


async def test_a_lost_kernel_is_replaced_and_announced_once(pool_of):
    pool = pool_of(Step("a", CRASHED), Step("b"), Step("c"))
    audience = code_replies.CodeReply()
    assert not await session_of(pool, audience).run(["a", "b", "c"])
    assert pool.started == 2
    assert audience.contents("announcement") == [(1, pools.LOST)]
    assert audience.endings == ["crashed", "ok", "ok"]


async def test_without_a_sandbox_every_cell_says_so(pool_of):
    pool = pool_of(Step("a"), Step("b"), sandbox_level="none")
    audience = code_replies.CodeReply()
    await session_of(pool, audience).run(["a", "b"])
    assert audience.contents("announcement") == [
        (0, run_words.UNSANDBOXED_WARNING),
        (1, run_words.UNSANDBOXED_WARNING),
    ]
    assert "UNSANDBOXED" in run_words.UNSANDBOXED_WARNING


@pytest.mark.parametrize("error", [errors.PoolFullError, errors.SandboxError])
async def test_a_cell_without_a_kernel_is_refused_and_the_next_may_have_one(pool_of, error):
    pool = pool_of(Step("b"))
    pool.refusals.append(error())
    audience = code_replies.CodeReply()
    assert not await session_of(pool, audience).run(["a", "b"])
    assert audience.endings == ["refused", "ok"]
    assert audience.contents("finished")[0][1].reason == str(error())


async def test_attachments_are_there_first_and_are_no_artifacts(pool_of):
    def look(directory):
        assert (directory / "d.csv").read_bytes() == b"12"

    pool = pool_of(Step("a", action=look))
    audience = code_replies.CodeReply()
    session = session_of(pool, audience)
    await session.attach([("d.csv", chunks(b"1", b"2"))])
    assert await session.run(["a"])
    assert audience.received == [(0, "finished", pools.OK)]


async def test_a_changed_attachment_is_an_artifact(pool_of):
    pool = pool_of(Step("a", action=lambda directory: (directory / "d").write_text("new")))
    audience = code_replies.CodeReply()
    session = session_of(pool, audience)
    await session.attach([("d", chunks(b"old"))])
    await session.run(["a"])
    assert audience.files == {"d": b"new"}


async def test_an_attachment_under_another_name_is_announced(pool_of):
    pool = pool_of(Step("a"))
    audience = code_replies.CodeReply()
    session = session_of(pool, audience)
    await session.attach([("../../x\x1b[2J.csv", chunks(b"1"))])
    await session.run(["a"])
    ((cell, text),) = audience.contents("announcement")
    assert cell == 0
    assert ".csv" in text
    assert text.isprintable()


async def test_a_refused_attachment_is_raised_before_anything_runs(pool_of):
    session = session_of(pool_of(limits=settings.Limits(upload_bytes=3)), code_replies.CodeReply())
    with pytest.raises(errors.FileTooLargeError):
        await session.attach([("big", chunks(b"1234"))])


@pytest.mark.parametrize("is_keeping", [True, False])
async def test_artifacts_are_told_with_their_digest_whether_kept_or_not(pool_of, is_keeping):
    def write(directory):
        (directory / "below").mkdir()
        (directory / "below/f").write_bytes(b"content")

    audience = code_replies.CodeReply(is_keeping=is_keeping)
    await session_of(pool_of(Step("a", action=write)), audience).run(["a"])
    digest = hashlib.sha256(b"content").hexdigest()
    assert audience.contents("artifact") == [(0, values.Artifact("below/f", 7, digest))]
    assert audience.files == ({"below/f": b"content"} if is_keeping else {})


async def test_artifacts_belong_to_the_cell_that_made_them_also_when_it_crashed(pool_of):
    pool = pool_of(
        Step("a", action=lambda directory: (directory / "one").touch()),
        Step("b", CRASHED, action=lambda directory: (directory / "two").touch()),
    )
    audience = code_replies.CodeReply()
    await session_of(pool, audience).run(["a", "b"])
    assert [(cell, artifact.name) for cell, artifact in audience.contents("artifact")] == [
        (0, "one"),
        (1, "two"),
    ]


async def test_links_are_left_out_and_by_products_not_even_mentioned(pool_of):
    def write(directory):
        (directory / "link").symlink_to("/etc/passwd")
        (directory / ".cache").mkdir()
        (directory / ".cache/x").touch()

    audience = code_replies.CodeReply()
    await session_of(pool_of(Step("a", action=write)), audience).run(["a"])
    ((_, text),) = audience.contents("announcement")
    assert text == "link was left out: it is a link."
    assert audience.contents("artifact") == []


async def test_what_cannot_be_copied_is_announced(pool_of):
    audience = code_replies.CodeReply()
    audience.spool.rmdir()
    step = Step("x", action=lambda directory: (directory / "a").touch())
    assert await session_of(pool_of(step), audience).run(["x"])
    ((_, text),) = audience.contents("announcement")
    assert text == "a was left out: it cannot be saved (No such file or directory)."
    audience.spool.mkdir()


async def test_sparse_files_do_not_multiply_beyond_the_workspace(pool_of):
    def write(directory):
        for name in "abc":
            with (directory / name).open("wb") as file:
                file.truncate(600_000)

    audience = code_replies.CodeReply()
    session = session_of(pool_of(Step("x", action=write)), audience, workspace_bytes=1_000_000)
    assert await session.run(["x"])
    assert list(audience.files) == ["a"]
    assert len(audience.contents("announcement")) == 2


async def test_a_file_that_is_refused_leaves_nothing_behind(pool_of):
    def write(directory):
        (directory / "big").write_bytes(bytes(11))

    audience = code_replies.CodeReply()
    session = session_of(
        pool_of(Step("x", action=write)), audience, workspace_bytes=20, upload_bytes=10
    )
    await session.run(["x"])
    ((_, text),) = audience.contents("announcement")
    assert text.startswith("big is larger than ")
    assert audience.files == {}
    assert list(audience.spool.iterdir()) == []


async def test_no_more_than_a_hundred_files_are_given_back(pool_of):
    def write(directory):
        for number in range(103):
            (directory / f"{number}").touch()

    audience = code_replies.CodeReply()
    await session_of(pool_of(Step("x", action=write)), audience).run(["x"])
    assert len(audience.files) == 100
    assert "103" in audience.contents("announcement")[0][1]


async def test_questions_are_answered_by_the_audience(pool_of):
    request = values.InputRequested("who? ", is_password=False)
    pool = pool_of(Step("a", input_request=request), Step("b", input_request=request))
    audience = code_replies.CodeReply(answers=["Ada"])
    await session_of(pool, audience).run(["a", "b"])
    assert pool.answers == ["Ada"]
    assert audience.endings == ["ok", "stopped"]
    assert audience.contents("finished")[1][1].reason == "Nobody answers."


async def test_stopping_ends_the_running_cell_only(pool_of):
    pool = pool_of(Step("a", hangs=True), Step("b"))
    audience = code_replies.CodeReply()
    session = session_of(pool, audience)
    running = asyncio.create_task(session.run(["a", "b"]))
    await pool.hanging.wait()
    await session.stop()
    assert not await running
    assert audience.endings == ["stopped", "ok"]


async def test_stopping_when_nothing_runs_does_nothing(pool_of):
    await session_of(pool_of(), code_replies.CodeReply()).stop()


async def test_a_cancelled_run_still_finishes_every_cell(pool_of):
    pool = pool_of(Step("a"), Step("b", hangs=True))
    audience = code_replies.CodeReply()
    running = asyncio.create_task(session_of(pool, audience).run(["a", "b", "c", "d"]))
    await pool.hanging.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert audience.endings == ["ok", "stopped", "refused", "refused"]


async def test_an_audience_that_is_gone_ends_the_code_at_once(pool_of):
    pool = pool_of(Step("a", outputs=(values.Text("stdout", "x"),) * 3, hangs=True))
    audience = code_replies.CodeReply(faults={"output": BrokenPipeError()})
    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(session_of(pool, audience).run(["a", "b"]), 30)
    assert len(pool.stopped) == 1


async def test_an_audience_that_fails_to_answer_ends_the_code_too(pool_of):
    pool = pool_of(Step("a", input_request=values.InputRequested("", is_password=False)))
    audience = code_replies.CodeReply(faults={"ask": ValueError("a fault of ours")})
    with pytest.raises(ValueError, match="a fault of ours"):
        await session_of(pool, audience).run(["a"])
    assert audience.endings == ["stopped"]
