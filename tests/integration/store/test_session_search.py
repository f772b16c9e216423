"""Search of sessions, on both databases."""

import pytest

from interpreter_bot import values
from interpreter_bot.sessions import session_search


@pytest.fixture
def add_turn(database):
    """Record a turn of a conversation of the page."""

    async def add_turn(thread, text, answer, *, title=""):
        session = await database.sessions.open(values.SessionKey("web", thread=thread))
        if title:
            await database.sessions.set_title(session.id, title)
        turn = await database.turns.start(session.id, person="you", text=text)
        await database.turns.finish(turn.id, values.TurnStatus.DONE, answer=answer)
        return session

    return add_turn


@pytest.fixture
def search(database):
    async def search(text):
        results = await session_search.search(database, "web", "", text, limit=10)
        return {result.key.thread: result.excerpt for result in results}

    return search


async def test_words_are_found_in_requests_answers_and_titles(add_turn, search):
    await add_turn("a", "Plot the sales by region", "The north sold most.")
    await add_turn("b", "What is 6 * 7?", "It is 42.", title="Sales, in a way")
    assert await search("SALES") == {"b": "", "a": "Plot the sales by region The north sold most."}
    assert list(await search("north sal")) == ["a"]
    assert await search("orth") == {}
    assert list(await search("42")) == ["b"]


@pytest.mark.first_case
async def test_what_is_deleted_or_on_another_network_is_not_found(database, add_turn, search):
    session = await add_turn("a", "unicorn", "")
    other = await database.sessions.open(values.SessionKey("slack", "T1", "C1", "1.2"))
    await database.turns.start(other.id, person="U1", text="unicorn")
    assert list(await search("unicorn")) == ["a"]
    await database.sessions.delete(session.id)
    assert await search("unicorn") == {}


@pytest.mark.first_case
async def test_the_excerpt_is_of_the_latest_turn_around_the_word(add_turn, search):
    await add_turn("a", "needle first", "")
    await add_turn("a", "hay " * 200 + "needle " + "straw " * 200, "")
    excerpt = (await search("needle"))["a"]
    assert "hay needle straw" in excerpt
    assert len(excerpt) < 200
    assert (excerpt[0], excerpt[-1]) == ("…", "…")


@pytest.mark.parametrize(
    "text", ["", " ' \" ", "(*):", "AND", 'a" OR b*', "' & | ! <->", "é:*", "%", "x" * 5000]
)
async def test_no_text_breaks_the_search(add_turn, search, text):
    await add_turn("a", "AND x" * 3, "")
    await search(text)


async def test_long_texts_are_stored_and_found_by_their_beginning(add_turn, search):
    long_text = "start " + " ".join(f"w{n}" for n in range(300_000))
    await add_turn("a", long_text, long_text)
    assert list(await search("start")) == ["a"]
