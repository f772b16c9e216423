"""The store returns what was stored, on both databases."""

import asyncio
import contextlib
import dataclasses
import datetime
import decimal

import pytest
import sqlalchemy

from interpreter_bot import errors, values
from interpreter_bot.store import records

Key = values.SessionKey
Kind = records.PartKind
Scope = values.Scope
Status = values.TurnStatus
MICRO = decimal.Decimal("0.000001")

HOSTILE = "a\x00b\ud800c\udfffd 😀 \u202e"


async def test_a_conversation_has_one_session_however_many_ask_at_once(database):
    key = Key("slack", "T1", "C1", "1.2")
    sessions = await asyncio.gather(*(database.sessions.open(key) for _ in range(30)))
    assert {(session.id, session.key) for session in sessions} == {(sessions[0].id, key)}
    assert (await database.sessions.find(key)).id == sessions[0].id


@pytest.mark.first_case
async def test_the_same_channel_elsewhere_is_another_session(database):
    places = [
        ("slack", "T1", "1"),
        ("slack", "T2", "1"),
        ("slack", "T1", "2"),
        ("discord", "T1", "1"),
    ]
    keys = [Key(platform, workspace, "C", thread) for platform, workspace, thread in places]
    assert len({(await database.sessions.open(key)).id for key in keys}) == 4
    assert await database.sessions.find(Key("web", "T1", "C", "1")) is None


@pytest.mark.first_case
async def test_what_is_known_of_a_session_can_be_changed(database, session):
    await database.sessions.set_model(session.id, "gpt-x")
    await database.sessions.set_title(session.id, "Petals")
    await database.sessions.note_kernel(session.id, {"snapshot": "s1", "variables": 3})
    changed = await database.sessions.get(session.id)
    assert (changed.model, changed.title) == ("gpt-x", "Petals")
    assert changed.kernel == {"snapshot": "s1", "variables": 3}
    late = {"snapshot": "s2"}
    await database.sessions.note_kernel(session.id, late, expected={"snapshot": "s0"})
    assert (await database.sessions.get(session.id)).kernel == changed.kernel
    await database.sessions.note_kernel(session.id, late, expected=changed.kernel)
    assert (await database.sessions.get(session.id)).kernel == late
    await database.sessions.set_model(session.id, None)
    assert (await database.sessions.get(session.id)).model is None


async def test_of_all_who_replace_what_is_said_of_files_one_does(database, session):
    note_files = database.sessions.note_files
    for before in ({}, {"gone": HOSTILE, "at": "1"}):
        after = {"gone": HOSTILE, "at": f"{before.get('at', '')}1"}
        results = await asyncio.gather(
            *(note_files(session.id, after | {"n": n}, expected=before) for n in "12")
        )
        assert sorted(results) == [False, True]
        await note_files(session.id, {"gone": HOSTILE, "at": "1"})
    assert (await database.sessions.get(session.id)).files == {"gone": HOSTILE, "at": "1"}


async def test_recent_sessions_come_latest_used_first(database):
    sessions = [await database.sessions.open(Key("web", thread=str(n))) for n in range(3)]
    await database.sessions.open(sessions[0].key)
    recent = await database.sessions.list_recent("web", limit=2)
    assert [session.id for session in recent] == [sessions[0].id, sessions[2].id]
    assert await database.sessions.list_recent("web", channel="other") == ()
    assert await database.sessions.count("web", "") == 3
    assert await database.sessions.count("web", "other") == 0


async def test_a_turn_runs_and_ends_once(database, session):
    turn = await database.turns.start(
        session.id, person="U1", text="Plot it!", request_id="1.7", attachments=["a.csv", "b"]
    )
    assert (turn.status, turn.ended, turn.attachments) == (Status.RUNNING, None, ("a.csv", "b"))
    assert await database.turns.get(turn.id) == turn
    assert await database.turns.finish(turn.id, Status.STOPPED, answer="Stopped.")
    assert not await database.turns.finish(turn.id, Status.DONE, answer="Too late")
    ended_turn = await database.turns.get(turn.id)
    assert (ended_turn.status, ended_turn.answer) == (Status.STOPPED, "Stopped.")
    assert ended_turn.started <= ended_turn.ended


@pytest.mark.first_case
async def test_turns_come_in_order_and_can_be_paged_backwards(database, session):
    turn_ids = [
        (await database.turns.start(session.id, person="p", text=str(n))).id for n in range(5)
    ]
    last_turns = await database.turns.list_for_session(session.id, limit=2)
    assert [turn.id for turn in last_turns] == turn_ids[3:]
    earlier_turns = await database.turns.list_for_session(
        session.id, limit=2, before=last_turns[0].id
    )
    assert [turn.id for turn in earlier_turns] == turn_ids[1:3]


async def test_parts_come_in_order_and_as_they_were(database, turn):
    execution = await database.executions.start(turn.id, "1 + 1")
    outputs = [
        values.Text("stderr", HOSTILE),
        values.Error("ValueError", "no", "ValueError: no"),
        values.Table(
            plain="t",
            columns=("", "a"),
            rows=(("0", "1"), ("1", "2")),
            row_count=9,
            column_count=1,
            index_count=1,
        ),
        values.Latex(latex="$x$"),
        values.Json(json='{"a": 1}'),
        values.Result(plain="2", display_id="d", is_update=True),
        values.Clear(wait=True),
        values.Notice("Cut."),
    ]
    detail = {"call": "c1", "arguments": HOSTILE}
    await database.parts.add(
        turn.id,
        records.NewPart(kind=Kind.TEXT, text="Let us see"),
        records.NewPart(kind=Kind.CODE, text="1 + 1", detail=detail, execution_id=execution),
    )
    new_parts = [records.NewPart(kind=Kind.OUTPUT, step=1, output=output) for output in outputs]
    await database.parts.add(turn.id, *new_parts)
    text, code, *output_parts = await database.parts.list_for_turn(turn.id)
    assert (text.kind, text.text, text.detail, text.output) == (Kind.TEXT, "Let us see", {}, None)
    assert (code.detail, code.execution_id) == (detail, execution)
    assert [part.output for part in output_parts] == outputs
    assert {part.step for part in output_parts} == {1}


@pytest.mark.first_case
async def test_pictures_and_pages_are_kept_as_files_once(database, turn, tmp_path):
    image = values.Image(mime="image/png", data=b"\x89PNG", plain="<Figure>", display_id="d")
    page = values.Html(html="<b>ü\x00</b>".encode())
    parts = [records.NewPart(kind=Kind.OUTPUT, output=output) for output in (image, image, page)]
    await database.parts.add(turn.id, *parts)
    first, second, third = (part.output for part in await database.parts.list_for_turn(turn.id))
    assert first == second
    assert (first.mime, first.plain, first.display_id, first.size_bytes) == (
        "image/png", "<Figure>", "d", 4,
    )  # fmt: skip
    assert await database.blobs.load(first.sha256) == b"\x89PNG"
    assert third.mime == "text/html"
    assert await database.blobs.load(third.sha256) == b"<b>\xc3\xbc\x00</b>"
    assert len([path for path in (tmp_path / "kept").rglob("*") if path.is_file()]) == 2


@pytest.mark.first_case
async def test_a_picture_that_cannot_be_kept_takes_nothing_with_it(database, turn, monkeypatch):
    async def fail(self, data):
        raise errors.StoreError("A picture could not be stored.")

    monkeypatch.setattr("interpreter_bot.store.blobs.Blobs.save", fail)
    image = values.Image(mime="image/png", data=b"png")
    await database.parts.add(
        turn.id,
        records.NewPart(kind=Kind.TEXT, text="Look."),
        records.NewPart(kind=Kind.OUTPUT, output=image),
    )
    text, output = await database.parts.list_for_turn(turn.id)
    assert text.text == "Look."
    assert output.output == values.Notice("What was shown here could not be stored.")


@pytest.mark.first_case
async def test_only_files_that_nothing_refers_to_are_discarded(database, turn, monkeypatch):
    monkeypatch.setattr("interpreter_bot.store.blobs._FRESH_SECONDS", -1)
    image = values.Image(mime="image/png", data=b"used")
    await database.parts.add(turn.id, records.NewPart(kind=Kind.OUTPUT, output=image))
    unused_digest = await database.blobs.save(b"unused")
    assert await database.parts.discard_unused_blobs() == 1
    assert await database.blobs.load(unused_digest) is None
    (part,) = await database.parts.list_for_turn(turn.id)
    assert await database.blobs.load(part.output.sha256) == b"used"


@pytest.mark.first_case
async def test_an_execution_is_seen_before_it_ends_and_ends_once(database, turn):
    execution_id = await database.executions.start(turn.id, "x")
    assert (await database.executions.list_for_turn(turn.id))[0].ending is None
    end = values.Finished(values.Ending.OUT_OF_MEMORY, 1.5, "Too much.", kernel_lost=True)
    await database.executions.finish(execution_id, end)
    await database.executions.finish(execution_id, values.Finished(values.Ending.OK, 0.0))
    (execution,) = await database.executions.list_for_turn(turn.id)
    assert execution.ending is values.Ending.OUT_OF_MEMORY
    assert (execution.seconds, execution.reason) == (1.5, "Too much.")
    assert execution.kernel_lost is True


@pytest.mark.first_case
async def test_code_that_goes_on_as_a_job_belongs_to_the_turn_of_the_job(database, session, turn):
    execution_id = await database.executions.start(turn.id, "work()", hosted_id="h1")
    for text, execution in (("Wait.", None), ("work()", execution_id)):
        part = records.NewPart(kind=records.PartKind.CODE, text=text, execution_id=execution)
        await database.parts.add(turn.id, part)
    async with database.transaction(is_writing=True):
        job = await database.turns.start(session.id, person="U1", text="work()")
        await database.executions.move(execution_id, job.id)
        await database.turns.note_progress(job.id, {"hosted_id": "h1"})
    assert [part.text for part in await database.parts.list_for_turn(turn.id)] == ["Wait."]
    assert [part.text for part in await database.parts.list_for_turn(job.id)] == ["work()"]
    assert await database.executions.list_for_turn(turn.id) == ()
    (execution,) = await database.executions.list_for_turn(job.id)
    assert (execution.id, execution.hosted_id) == (execution_id, "h1")
    assert (await database.turns.get(job.id)).progress == {"hosted_id": "h1"}


async def test_artifacts_are_remembered(database, turn):
    digest = "0" * 64
    artifacts = [values.Artifact("out/a.csv", 2**40, digest), values.Artifact(HOSTILE, 0, digest)]
    await database.artifacts.add(turn.id, *artifacts)
    first, second = await database.artifacts.list_for_turns([turn.id])
    assert (first.name, first.size_bytes) == ("out/a.csv", 2**40)
    assert second.size_bytes == 0


@pytest.mark.first_case
async def test_a_turn_whose_session_was_deleted_goes_on_nowhere(database, session, turn):
    await database.sessions.delete(session.id)
    successor = await database.sessions.open(session.key)
    next_turn = await database.turns.start(successor.id, person="p", text="?")
    # Its id is not reused by the new conversation.
    assert successor.id != session.id
    assert next_turn.id != turn.id
    assert not await database.turns.finish(turn.id, Status.DONE)
    with pytest.raises(errors.BotError):
        await database.turns.start(session.id, person="p", text="?")
    with pytest.raises(errors.BotError):
        await database.parts.add(turn.id, records.NewPart(kind=Kind.TEXT, text="x"))
    with pytest.raises(errors.BotError, match="deleted"):
        await database.usage.add(turn.id, values.Usage())


async def test_what_is_done_together_is_done_as_a_whole_or_not_at_all(database):
    key = Key("web", thread="together")

    async def fail_in_transaction():
        async with database.transaction(is_writing=True):
            session = await database.sessions.open(key)
            turn = await database.turns.start(session.id, person="p", text="?")
            assert (await database.turns.get(turn.id)).request == "?"
            # Another task does not see the open transaction.
            assert await asyncio.create_task(database.sessions.find(key)) is None
            raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        await fail_in_transaction()
    async with database.transaction(is_writing=False):
        assert await database.sessions.find(key) is None


@pytest.mark.first_case
async def test_the_narrowest_choice_holds(database):
    person_in_channel = Scope("slack", "T1", "C1", "U1")
    scopes = [person_in_channel, Scope("slack", "T1", person="U1"), Scope("slack", "T1", "C1"),
                Scope("slack", "T1"), Scope("slack"), Scope()]  # fmt: skip
    for rank, scope in enumerate(scopes):
        await database.choices.put(scope, "rank", rank)
    await database.choices.put(Scope("slack", "T1", "C2"), "rank", "elsewhere")
    await database.choices.put(Scope("slack"), "only", ["wide", {"\x00": HOSTILE}])
    for rank, scope in enumerate(scopes):
        assert (await database.choices.list_around(person_in_channel)).effective["rank"] == rank
        await database.choices.remove(scope, "rank")
    assert (await database.choices.list_around(person_in_channel)).effective == {
        "only": ["wide", {"\x00": HOSTILE}]
    }


@pytest.mark.first_case
async def test_all_that_was_chosen_around_a_scope_is_known(database):
    scopes = (Scope(), Scope("slack"), Scope("slack", "T1"), Scope("slack", "T1", "C1", "U1"))
    for number, scope in enumerate(scopes):
        await database.choices.put(scope, "n", number)
    await database.choices.put(Scope("slack", "T1", "C2"), "n", "elsewhere")
    await database.choices.put(Scope("slack", "T1"), "m", "other")
    assert sorted(
        choice.value for choice in (await database.choices.list_around(scopes[-1])).of("n")
    ) == [0, 1, 2, 3]
    assert (await database.choices.list_around(scopes[1])).of("m") == ()


@pytest.mark.first_case
async def test_a_choice_replaces_the_same_scopes_earlier_one(database):
    scope = Scope("slack", person="U1")
    await asyncio.gather(*(database.choices.put(scope, "n", number) for number in range(10)))
    await database.choices.put(scope, "n", False)
    assert (await database.choices.list_around(scope)).effective == {"n": False}
    assert (await database.choices.list_around(Scope("slack"))).effective == {}


async def test_of_all_who_claim_an_event_exactly_one_gets_it(opening, database):
    async with opening() as replica:
        claims = [
            bot_database.events.claim("slack", "Ev1")
            for bot_database in (database, replica)
            for _ in range(20)
        ]
        assert sorted(await asyncio.gather(*claims)) == [False] * 39 + [True]
        assert await replica.events.claim("discord", "Ev1")
        assert await database.events.claim("slack", "Ev2")


async def test_what_a_dead_bot_claimed_and_did_not_begin_is_found_once(opening, database):
    # A message in a thread may be answered in the session of its channel.
    session = await database.sessions.open(values.SessionKey("slack", "T1", "C1"))
    async with opening() as other:
        for name in ("lost", "settled", "begun"):
            fields = {"address": f"slack/T1/C1/{name}", "request_id": name}
            assert await other.events.claim("slack", name, **fields)
        await other.events.settle("slack", "settled")
        await other.turns.start(session.id, person="p", text="x", request_id="begun")
        assert await other.events.claim("slack", "nobody waits")
    assert await database.events.take_orphans(["discord", "web"]) == ()
    (event,) = await database.events.take_orphans(["slack"])
    assert event.address == "slack/T1/C1/lost"
    assert await database.events.take_orphans(["slack"]) == ()
    assert not await database.events.claim("slack", "lost")


@pytest.mark.first_case
@pytest.mark.parametrize(
    "other_address", ["web/T1/C1/1.2", "slack/T2/C1/1.2", "slack/T1/C2/1.2", "slack/T1/C1/1.3"]
)
async def test_a_turn_is_not_that_of_an_event_of_another_session(
    opening, database, session, other_address
):
    async with opening() as other:
        fields = {"address": other_address, "request_id": "1.2", "content": {}}
        assert await other.events.claim("any", "E", **fields)
        turn = await other.turns.start(session.id, person="p", text="x", request_id="1.2")
    assert [orphan.id for orphan in await database.turns.take_orphans()] == [turn.id]
    (event,) = await database.events.take_orphans(["any"])
    assert (event.address, event.content) == (other_address, {})


@pytest.mark.first_case
async def test_a_turn_that_did_nothing_begins_again_with_its_event(opening, database):
    # Discord opens a thread for a message in a channel. Names may be long.
    key = values.SessionKey("discord", "1", "ü" * 200)
    session = await database.sessions.open(dataclasses.replace(key, thread="9"))
    async with opening() as other:
        fields = {"address": values.format_key(key), "request_id": "9", "content": {}}
        assert await other.events.claim("discord", "E", **fields)
        await other.turns.start(session.id, person="p", text="x", request_id="9")
    assert await database.turns.take_orphans() == ()
    assert len(await database.events.take_orphans(["discord"])) == 1
    assert await database.turns.list_for_session(session.id) == ()


async def test_a_turn_that_was_perhaps_not_shown_is_found_until_its_event_is_settled(
    opening, database
):
    session = await database.sessions.open(values.SessionKey("slack", "T1", "C1"))
    async with opening() as other:
        turns = {}
        for name in ("unshown", "shown", "old", "running", "without event", "unshown, too"):
            if name != "without event":
                fields = {"address": "slack/T1/C1/1.2", "request_id": name}
                assert await other.events.claim("slack", name, **fields)
            turns[name] = await other.turns.start(session.id, person="p", text="x", request_id=name)
            if name != "running":
                assert await other.turns.finish(turns[name].id, Status.DONE)
        await other.events.settle("slack", "shown")
        async with database.engine.begin() as connection:
            ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=2)
            update = sqlalchemy.update(records.Turn).where(records.Turn.id == turns["old"].id)
            await connection.execute(update.values(ended=ended))
        assert await other.turns.list_unshown() == (), "its own are being shown"
    async with opening() as following:
        assert [turn.request_id for turn in following.unshown] == ["unshown", "unshown, too"]
        assert [turn.request_id for turn in following.orphans] == ["running"]
    assert [turn.request_id for turn in await database.turns.list_unshown()] == [
        "unshown",
        "running",
        "unshown, too",
    ]
    assert await database.events.take_orphans(["slack"]) == ()
    assert await database.turns.list_unshown() == ()


@pytest.mark.first_case
async def test_a_command_of_a_dead_bot_is_told_of_although_turns_have_no_request(
    opening, database, session
):
    async with opening() as other:
        assert await other.events.claim("slack", "command", address="slack/lost")
        # A reset records such a turn.
        await other.turns.start(session.id, person="", text="")
    assert [event.event_id for event in await database.events.take_orphans(["slack"])] == [
        "command"
    ]


@pytest.mark.first_case
async def test_old_events_are_forgotten(database):
    await database.events.claim("slack", "old")
    assert await database.events.prune(datetime.timedelta(hours=1)) == 0
    assert not await database.events.claim("slack", "old")
    assert await database.events.prune(datetime.timedelta(0)) == 1
    assert await database.events.claim("slack", "old")


async def test_old_deliveries_are_forgotten_unless_their_turn_runs(database, session):
    delivery = {"nonce": "n", "digest": "d", "first_tried_at": 1.0, "message": "5"}
    for request_id in ("running", "ended"):
        turn = await database.turns.start(session.id, person="p", text="x", request_id=request_id)
        await database.deliveries.put("slack", request_id, 0, **delivery)
    await database.turns.finish(turn.id, values.TurnStatus.DONE)
    await database.deliveries.prune(2.0)
    assert len(await database.deliveries.list_for_request("slack", "running")) == 1
    assert await database.deliveries.list_for_request("slack", "ended") == ()


async def test_hostile_text_is_kept_as_well_as_can_be(database):
    key = Key("web\x00", HOSTILE, "c" * 5000, "\ud800")
    session = await database.sessions.open(key)
    assert (await database.sessions.open(key)).id == session.id
    assert (
        await database.sessions.open(Key("web\x00", HOSTILE, "c" * 5001, "\ud800"))
    ).id != session.id
    assert (
        await database.sessions.open(Key("web\x00", HOSTILE, "c" * 5000, "\udfff"))
    ).id != session.id
    await database.sessions.set_title(session.id, HOSTILE)
    turn = await database.turns.start(
        session.id, person=HOSTILE, text=HOSTILE, request_id=HOSTILE, attachments=[HOSTILE]
    )
    assert turn.request == "a\ufffdb\ufffdc\ufffdd 😀 \u202e"
    assert await database.turns.finish(turn.id, Status.FAILED, answer=HOSTILE)
    await database.usage.add(turn.id, values.Usage(money=MICRO), model=HOSTILE)
    place = {"platform": "web\x00", "workspace": HOSTILE}
    assert (await database.usage.sum_for_person(HOSTILE, **place)).money == MICRO
    assert await database.events.claim(HOSTILE, HOSTILE)
    assert not await database.events.claim(HOSTILE, HOSTILE)


async def test_names_of_every_length_and_alphabet_fit_into_an_index(database):
    # Incompressible, because PostgreSQL measures the size of the compressed entry.
    names = [
        "".join(chr(0x20000 + (n * 7919 * (k + 3)) % 40000) for n in range(128)) for k in range(5)
    ]
    session = await database.sessions.open(Key(*names[:4]))
    assert session.key == Key(*names[:4])
    await database.choices.put(Scope(*names[:4]), names[4], 1)
    assert (await database.choices.list_around(Scope(*names[:4]))).effective == {names[4]: 1}


async def test_two_megabytes_of_text_are_kept_and_endless_text_is_cut(database, session):
    long_text = "ü😀" * 1_000_000
    turn = await database.turns.start(session.id, person="p", text=long_text)
    assert (await database.turns.get(turn.id)).request == long_text
    cut_turn = await database.turns.start(session.id, person="p", text="x" * 5_000_000)
    assert cut_turn.request.endswith("[1,000,000 more characters were not kept]")
    output = values.Text("stdout", long_text)
    await database.parts.add(turn.id, records.NewPart(kind=Kind.OUTPUT, output=output))
    (part,) = await database.parts.list_for_turn(turn.id)
    assert part.output == output


async def test_times_are_utc(database, turn):
    before = datetime.datetime.now(datetime.UTC)
    session = await database.sessions.open(Key("web"))
    assert session.created.utcoffset() == datetime.timedelta(0)
    assert before <= session.created <= datetime.datetime.now(datetime.UTC)
    assert turn.started.tzinfo is datetime.UTC


@pytest.mark.first_case
async def test_a_session_knows_whose_turns_it_had(opening):
    async with opening() as database:
        session = await database.sessions.open(values.SessionKey("web", thread="people 1"))
        other = await database.sessions.open(values.SessionKey("web", thread="people 2"))
        for person in ("u1", "u2", "u1"):
            await database.turns.start(session.id, person=person, text="")
        assert await database.turns.list_people(session.id) == {"u1", "u2"}
        assert await database.turns.list_people(other.id) == frozenset()


async def test_a_record_is_whole_after_a_rollback_and_cannot_be_changed(database, session):
    with contextlib.suppress(ZeroDivisionError):
        async with database.transaction(is_writing=True):
            await database.sessions.set_title(session.id, "Other")
            record = await database.sessions.get(session.id)
            raise ZeroDivisionError
    assert record.title == "Other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.title = "Another"
    assert await database.sessions.get(session.id) == session
