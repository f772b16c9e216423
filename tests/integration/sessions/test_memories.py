"""What a model is told of a long conversation."""

from interpreter_bot import values
from interpreter_bot.agent import chat_messages
from interpreter_bot.sessions import stored_transcripts
from interpreter_bot.store import databases, records


async def test_a_long_conversation_begins_at_the_same_turn_for_many_turns(tmp_path):
    beginnings = {}
    url = f"sqlite:///{tmp_path}/bot.db"
    async with databases.Database.open(url, blobs_directory=tmp_path / "kept") as database:
        session = await database.sessions.open(values.SessionKey("web", thread="t"))
        for number in range(152):
            turn = await database.turns.start(session.id, person="U", text=str(number))
            if number in (1, 99, 100, 101, 102, 149, 150, 151):
                messages = await stored_transcripts.load(database, session.id, before=turn.id)
                assert messages[-1].text == str(number - 1)
                beginnings[number] = messages[0].text
            detail = {
                "messages": [chat_messages.to_dict(chat_messages.UserMessage(str(number)))],
                "is_whole": False,
            }
            memory = records.NewPart(kind=records.PartKind.MEMORY, detail=detail)
            await database.parts.add(turn.id, memory)
    assert {number for number, first in beginnings.items() if first == "0"} == {1, 99, 100}
    assert {beginnings[number] for number in (101, 102, 149, 150)} == {"50"}
    assert beginnings[151] == "100"
