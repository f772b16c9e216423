"""A conversation that begins with a copy of another one, on either database."""

import pytest

from interpreter_bot import errors, values
from interpreter_bot.store import records

Kind = records.PartKind
COPY = values.SessionKey("slack", "T1", "C1", "2.1")


async def _said(database, session):
    """Give a session three turns, of which the last one still runs."""
    for number, status in enumerate((values.TurnStatus.DONE, values.TurnStatus.STOPPED, None)):
        turn = await database.turns.start(
            session.id, person="U1", text=f"q{number}", request_id=f"{number}", attachments=["a"]
        )
        one = await database.executions.start(turn.id, f"x = {number}", hosted_id="h")
        await database.parts.add(
            turn.id,
            records.NewPart(kind=Kind.TEXT, text="words"),
            records.NewPart(kind=Kind.CODE, text=f"x = {number}", execution_id=one),
            records.NewPart(kind=Kind.MEMORY, detail={"messages": [], "is_whole": False}),
        )
        await database.executions.finish(one, values.Finished(values.Ending.OK, 0.5))
        await database.artifacts.add(turn.id, values.Artifact("f", 1, "0" * 64))
        if status is not None:
            await database.turns.finish(turn.id, status, answer="It is.")


def _copying(database, session, key=COPY):
    return database.session_copies.add(
        session, key, person="U2", notice="A copy.", title="Two", kernel={"kernel": "k"}
    )


async def test_all_but_what_still_runs_is_copied_and_the_copy_is_whose_who_wanted_it(
    database, session
):
    await database.sessions.set_model(session.id, "good")
    session = await database.sessions.get(session.id)
    await _said(database, session)
    await _copying(database, session)
    copy = await database.sessions.find(COPY)
    assert (copy.title, copy.model, copy.kernel) == ("Two", "good", {"kernel": "k"})
    first, *turns = await database.turns.list_for_session(copy.id)
    assert (first.person, first.request, first.status) == ("U2", "", values.TurnStatus.DONE)
    assert [(one.request, one.status.value, one.answer) for one in turns] == [
        ("q0", "done", "It is."),
        ("q1", "stopped", "It is."),
    ]
    assert {(one.request_id, one.attachments, one.progress) for one in turns} == {
        ("", ("a",), None)
    }
    notice, *parts = await database.parts.list_for_turns([first.id, *(one.id for one in turns)])
    assert notice.text == "A copy."
    assert [one.kind for one in parts] == [Kind.TEXT, Kind.CODE, Kind.MEMORY] * 2
    executions = await database.executions.list_for_turns([one.id for one in turns])
    assert [one.execution_id for one in parts if one.kind is Kind.CODE] == [
        one.id for one in executions
    ]
    assert {(one.hosted_id, one.ending) for one in executions} == {("", values.Ending.OK)}
    assert len(await database.artifacts.list_for_turns([one.id for one in turns])) == 2
    owners = {one.id: person for one, person in await database.sessions.list_with_owners()}
    assert (owners[session.id], owners[copy.id]) == ("U1", "U2")
    # Neither is changed with the other.
    await database.turns.delete(turns[-1].id)
    await database.sessions.delete(session.id)
    assert [one.request for one in await database.turns.list_for_session(copy.id)] == ["", "q0"]


@pytest.mark.first_case
async def test_no_session_is_replaced_by_a_copy(database, session):
    await _said(database, session)
    with pytest.raises(errors.StoreError):
        await _copying(database, session, session.key)
    assert len(await database.turns.list_for_session(session.id)) == 3
