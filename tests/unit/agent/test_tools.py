"""Calls are understood however badly they are written, and never misunderstood quietly."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import chat_messages, tools


def read(arguments, name="run_code"):
    return tools.parse_call(chat_messages.Call("1", name, arguments))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ('{"code": "print(1)"}', "print(1)"),
        ('{"python": "print(1)"}', "print(1)"),
        ("42", "42"),
        ("[1, 2]", "[1, 2]"),
        ("import os\nprint(1)", "import os\nprint(1)"),
        ('{"code": "a = 1\nb = 2"}', "a = 1\nb = 2"),
        ('{"python_code": "print(1)", "language": "python"}', "print(1)"),
        ("""{"code": "re.findall('\\d+', s)"}""", r"re.findall('\d+', s)"),
        ('{"code": "print(\'a\\\\nb\')"}', "print('a\\nb')"),
        (r"""{"code": "print(\'\\n\')"}""", r"print('\n')"),
        (json.dumps({"code": '{"a": 1}'}), '{"a": 1}'),
        (json.dumps({"code": "print('\U0001f40d')"}), "print('\U0001f40d')"),
    ],
)
def test_code_is_found(arguments, code):
    assert read(arguments) == tools.RunCode(code)


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "  ", "{}", "{", '{"code": ""}', '{"code": 5}', '{"x": 1}'),
        '{"code": "print("hi")"}',
        '{"code": "print(1)\\nprint(2',
        '{"code": "x = ""a"""}',
        '{"code": "print(", ")"}',
        '{"code": "f(", "a": 1)"}',
        '{"a": "print(1)", "b": "print(2)"}',
    ],
)
def test_what_holds_no_code_is_answered(arguments):
    assert isinstance(read(arguments), tools.UnreadableCall)


@pytest.mark.parametrize(
    "name",
    [
        *("python", "code_interpreter", "run_code<|channel|>commentary", "functions.run_code"),
        *("functions.run_code:0", "RunCode", "run-code", '"run_code"', "run_code()"),
        *("default_api.run_code", "run_code <|constrain|>json", "functions.python"),
    ],
)
def test_other_names_for_code_are_known(name):
    assert read('{"code": "x"}', name) == tools.RunCode("x")


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        ('{"name": "/mnt/data/a.png"}', tools.ViewImage("a.png")),
        ('{"path": "a.png"}', tools.ViewImage("a.png")),
        ("a.png", tools.ViewImage("a.png")),
    ],
)
def test_pictures_are_found(arguments, wish):
    assert read(arguments, "view_image") == wish


@hypothesis.given(st.text(), st.sampled_from([*sorted(tools.NAMES), "other"]))
def test_nothing_that_is_written_breaks_the_reading(arguments, name):
    read(arguments, name)


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"code":' * 50_000, "{'a':" * 20_000, "-" * 9999]
)
def test_deep_nesting_breaks_nothing(arguments):
    read(arguments)


@hypothesis.given(st.text(), st.lists(st.integers(1, 9)), st.booleans())
def test_code_is_seen_while_it_is_written(code, sizes, ascii_only):
    hypothesis.assume(not any("\ud800" <= mark <= "\udfff" for mark in code))
    written = json.dumps({"code": code}, ensure_ascii=ascii_only)
    peek, seen = tools.CodePreview(), ""
    while written:
        size = sizes.pop() if sizes else len(written)
        seen += peek.feed(written[:size])
        written = written[size:]
    assert seen == code


def test_a_picture_without_a_name_is_answered():
    assert isinstance(read("{}", "view_image"), tools.UnreadableCall)


def test_schemas_name_their_required_parameters():
    for tool in tools.TOOLS:
        assert set(tool.parameters["required"]) <= set(tool.parameters["properties"])
        assert tool.name != "python"


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        ('{"question": "Which?", "choices": ["A", "B"]}', ("Which?", ("A", "B"))),
        ('{"question": "Which?", "choices": "A\\nB"}', ("Which?", ("A", "B"))),
        ("Which?", ("Which?", ())),
        ('{"question": "Which?", "choices": null}', ("Which?", ())),
        ('{"question": "Which?", "choices": ["A", " a ", "", "B", "B"]}', ("Which?", ("a", "B"))),
        ('{"question": "Which?", "choices": [2024, 2025]}', ("Which?", ("2024", "2025"))),
        ('{"question": "a\\u001b[31mb", "choices": ["x\\ny"]}', ("ab", ("x y",))),
    ],
)
def test_a_question_to_a_person_is_read(arguments, request_):
    assert read(arguments, "ask_person") == tools.AskPerson(*request_)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": "  "},
        {"question": "x" * 5000},
        {"question": "Which?", "choices": [f"choice {number}" for number in range(50)]},
        {"question": "Which?", "choices": ["x" * 200]},
        {"question": ["Which?"]},
    ],
)
def test_a_question_that_nobody_would_read_is_not_asked(arguments):
    request = read(json.dumps(arguments), "ask_person")
    assert isinstance(request, tools.UnreadableCall)
    assert request.sentence.startswith("Nothing was asked.")


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        *((600, 600.0), ("600", 600.0), (1e300, 1e300), (0, None), (-5, None), ("soon", None)),
        *((None, None), ([1], None), (float("nan"), None), (float("inf"), None), (True, 1.0)),
        pytest.param(10**400, None, id="no float"),
    ],
)
def test_only_a_number_of_seconds_is_a_timeout(timeout, seconds):
    request = read(json.dumps({"code": "f()", "timeout": timeout}))
    assert (request.code, request.seconds) == ("f()", seconds)


def test_a_timeout_is_offered_only_if_code_may_run_on():
    about = {"can_see_images": True, "can_ask": True}
    for longest in (0.0, 3600.0):
        run = tools.select_tools(**about, max_background_seconds=longest)[0].parameters
        assert ("timeout" in run["properties"]) == bool(longest)
        assert run["required"] == ["code"]
