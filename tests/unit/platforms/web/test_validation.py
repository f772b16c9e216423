import pytest
from aiohttp import multipart

from interpreter_bot.platforms.web import files, validation


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
    header = files.disposition(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.startswith('attachment; filename="')
    expected = name.replace("\\", "/").rstrip("/").rpartition("/")[2] or "file"
    assert _saved_as(header) == expected.replace("\ud800", "?")


@pytest.mark.parametrize("thread", [None, 1, "", "short", "x" * 65, "a/b" * 8, "../" * 8, "é" * 20])
def test_a_made_up_thread_is_refused(thread):
    with pytest.raises(validation.MalformedError):
        validation.key(thread)


def test_a_text_is_measured():
    assert validation.text({"text": "x\ud800"}, "text") == "x?"
    with pytest.raises(validation.MalformedError):
        validation.text({"text": 1}, "text")
    with pytest.raises(Exception, match="100,001 characters, and the limit is 100,000"):
        validation.text({"text": "x" * 100_001}, "text")


@pytest.mark.parametrize("number", [None, "1", 1.0, True, -1, 2**31])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(validation.MalformedError):
        validation.whole_number({"n": number}, "n")
