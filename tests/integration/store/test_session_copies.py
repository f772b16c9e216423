"""Copies of conversations, on both databases."""

import pytest

from interpreter_bot import errors, values
from interpreter_bot.store import records

Kind = records.PartKind
COPY = values.SessionKey("slack", "T1", "C1", "2.1")


async def _add_turns(database, session):
    """Give a session three turns, of which the last one still runs."""
    for number, status in enumerate((values.TurnStatus.DONE, values.TurnStatus.STOPPED, None)):
        turn = await database.turns.start(
            session.id, person="U1", text=f"q{number}", request_id=f"{number}", attachments=["a"]
        )
        execution_id = await database.executions.start(turn.id, f"x = {number}", hosted_id="h")
        await database.parts.add(
            turn.id,
            records.NewPart(kind=Kind.TEXT, text="words"),
            records.NewPart(kind=Kind.CODE, text=f"x = {number}", execution_id=execution_id),
            records.NewPart(kind=Kind.MEMORY, detail={"messages": [], "is_whole": False}),
        )
        await database.executions.finish(execution_id, values.Finished(values.Ending.OK, 0.5))
        await database.artifacts.add(turn.id, values.Artifact("f", 1, "0" * 64))
        if status is not None:
            await database.turns.finish(turn.id, status, answer="It is.")


def _copy_session(database, session, key=COPY):
    return database.session_copies.add(
        session, key, person="U2", notice="A copy.", title="Two", kernel={"kernel": "k"}
    )


async def test_all_but_what_still_runs_is_copied_and_the_copy_is_whose_who_wanted_it(
    database, session
):
    await database.sessions.set_model(session.id, "good")
    session = await database.sessions.get(session.id)
    await _add_turns(database, session)
    await _copy_session(database, session)
    copy = await database.sessions.find(COPY)
    assert (copy.title, copy.model, copy.kernel) == ("Two", "good", {"kernel": "k"})
    notice_turn, *turns = await database.turns.list_for_session(copy.id)
    assert (notice_turn.person, notice_turn.request, notice_turn.status) == (
        "U2",
        "",
        values.TurnStatus.DONE,
    )
    assert [(record.request, record.status.value, record.answer) for record in turns] == [
        ("q0", "done", "It is."),
        ("q1", "stopped", "It is."),
    ]
    assert {(record.request_id, record.attachments, record.progress) for record in turns} == {
        ("", ("a",), None)
    }
    notice, *parts = await database.parts.list_for_turns(
        [notice_turn.id, *(record.id for record in turns)]
    )
    assert notice.text == "A copy."
    assert [record.kind for record in parts] == [Kind.TEXT, Kind.CODE, Kind.MEMORY] * 2
    executions = await database.executions.list_for_turns([record.id for record in turns])
    assert [record.execution_id for record in parts if record.kind is Kind.CODE] == [
        record.id for record in executions
    ]
    assert {(record.hosted_id, record.ending) for record in executions} == {("", values.Ending.OK)}
    assert len(await database.artifacts.list_for_turns([record.id for record in turns])) == 2
    owners = {record.id: person for record, person in await database.sessions.list_with_owners()}
    assert (owners[session.id], owners[copy.id]) == ("U1", "U2")
    # A change of one does not change the other.
    await database.turns.delete(turns[-1].id)
    await database.sessions.delete(session.id)
    assert [record.request for record in await database.turns.list_for_session(copy.id)] == [
        "",
        "q0",
    ]


@pytest.mark.first_case
async def test_no_session_is_replaced_by_a_copy(database, session):
    await _add_turns(database, session)
    with pytest.raises(errors.StoreError):
        await _copy_session(database, session, session.key)
    assert len(await database.turns.list_for_session(session.id)) == 3
