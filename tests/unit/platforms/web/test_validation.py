import pytest
from aiohttp import multipart

from interpreter_bot import errors, values
from interpreter_bot.platforms import http_files
from interpreter_bot.platforms.web import tab_messages, validation


def _saved_as(header):
    """What a client that knows RFC 6266 calls the file."""
    kind, parameters = multipart.parse_content_disposition(header)
    assert kind == "attachment"
    return multipart.content_disposition_filename(parameters)


@pytest.mark.parametrize(
    "name",
    [
        "plain.csv",
        "two words.csv",
        'quote".csv',
        "back\\slash.csv",
        "semi;colon=1.csv",
        "per%20cent.csv",
        "новый файл.csv",
        "表" * 300 + ".csv",
        "\u202egpj.exe",
        "line\r\nSet-Cookie: x=1.csv",
        "a/b/c.csv",
        "../../x",
        "emoji 📈.png",
        "\ud800broken",
        "",
        "/",
    ],
)
def test_any_name_makes_a_whole_header(name):
    header = http_files.content_disposition(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.startswith('attachment; filename="')
    expected = name.replace("\\", "/").rstrip("/").rpartition("/")[2] or "file"
    assert _saved_as(header) == expected.replace("\ud800", "?")


@pytest.mark.parametrize("thread", [None, 1, "", "short", "x" * 65, "a/b" * 8, "../" * 8, "é" * 20])
def test_a_made_up_thread_is_refused(thread):
    with pytest.raises(validation.MalformedError):
        validation.parse_key(thread)


def test_a_text_is_measured():
    assert validation.read_text({"text": "x\ud800"}, "text") == "x?"
    with pytest.raises(validation.MalformedError):
        validation.read_text({"text": 1}, "text")
    with pytest.raises(Exception, match="100,001 characters, and the limit is 100,000"):
        validation.read_text({"text": "x" * 100_001}, "text")


HERE = {"thread": "0" * 16}


@pytest.mark.parametrize("number", [None, "1", 1.0, True, -1, 2**31, float("inf")])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(validation.MalformedError):
        tab_messages.parse({"do": "watch", **HERE, "max_turns": number})


def test_a_message_is_what_it_says_and_unknown_fields_are_passed_over():
    said = {"do": "send", **HERE, "id": "1" * 16, "text": "x\ud800", "files": ["a"], "new": 1}
    message = tab_messages.parse(said)
    assert message == tab_messages.SendRequest(
        thread="0" * 16, id="1" * 16, text="x?", files=("a",)
    )
    assert message.key == values.SessionKey("web", thread="0" * 16)
    with pytest.raises(errors.BotError, match="100,001 characters"):
        tab_messages.parse({**said, "text": "x" * 100_001})


@pytest.mark.parametrize(
    "message",
    [
        *(None, 1, [], {}, {"do": ["send"]}, {"do": "fly"}, {"do": "stop"}),
        {"do": "stop", "thread": "../../x"},
        {"do": "reset", **HERE, "files": "yes"},
        {"do": "mark", **HERE, "mark": "starred"},
        {"do": "read_data", **HERE, "query_id": 1, "table": "t1\n"},
        {"do": "send", **HERE, "id": "1" * 16, "files": "name"},
        {"do": "send", **HERE, "id": "1" * 16, "files": ["x"] * 201},
        {"do": "send", **HERE, "id": "1" * 16, "is_code": 1},
    ],
)
def test_what_is_no_message_is_refused(message):
    with pytest.raises(validation.MalformedError):
        tab_messages.parse(message)
