"""What a model writes into its text is found, however the text is cut into pieces."""

import json
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import tool_calls_in_text, tools

BLOCK = "Look:\n```python\nprint(1)\n```\n"
CALL = {"name": "run_code", "arguments": {"code": "print(1)"}}

MARKED = st.lists(
    st.sampled_from(
        [
            *(
                "```",
                "```python\n",
                "```json\n",
                "```\n",
                "~~~\n",
                "````\n",
                "`",
                "\n",
                " ",
                "    ",
            ),
            *("<tool_call>", "</tool_call>", "<tool", "{", "}", '{"name": "run_code", '),
            *('"arguments": {"code": "1"}}', "print(1)\n", "words", "é", "\r\n", "\x0b", "\u2028"),
        ]
    )
).map("".join)


def split(text, *, takes_python=True):
    return in_pieces(text, [], takes_python=takes_python)


def in_pieces(text, sizes, *, takes_python=True):
    splitter = tool_calls_in_text.Parser(tools.KNOWN, takes_python=takes_python)
    pieces = []
    while text:
        size = sizes.pop() if sizes else len(text)
        pieces += splitter.feed(text[:size])
        text = text[size:]
    pieces += splitter.finish()
    return tool_calls_in_text._joined(pieces)


def test_block_is_code_and_the_rest_is_words():
    assert split("Look:\n```python\nprint(1)\n```\nDone.") == [
        tool_calls_in_text.Words("Look:\n"),
        tool_calls_in_text.Writing("print(1)\n"),
        tool_calls_in_text.Block("print(1)\n"),
        tool_calls_in_text.Words("Done."),
    ]


@pytest.mark.parametrize(
    "opening", ["```python", "```py", "``` Python ", "~~~python3", "  ```ipython"]
)
def test_openings_of_python(opening):
    closing = opening.strip()[:3]
    pieces = split(f"{opening}\nx\n{closing}\n")
    assert pieces == [tool_calls_in_text.Writing("x\n"), tool_calls_in_text.Block("x\n")]


def test_block_that_nobody_closed_is_a_block():
    assert split("```python\nx")[-1] == tool_calls_in_text.Block("x", is_closed=False)


def test_fence_inside_a_string_of_code_does_not_close_a_longer_one():
    code = 'print("""\n```\nx\n```\n""")\n'
    assert split(f"````python\n{code}````\n")[-1] == tool_calls_in_text.Block(code)


@pytest.mark.parametrize("language", ["", "text", "bash", "sql", "pycon"])
def test_other_blocks_are_words(language):
    text = f"```{language}\n```python\nx\n```\n"
    assert split(text) == [tool_calls_in_text.Words(text)]


def test_python_is_words_where_it_is_not_taken():
    assert split(BLOCK, takes_python=False) == [tool_calls_in_text.Words(BLOCK)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CALL),
        f"```json\n{json.dumps(CALL)}\n```",
        f"```json\n{json.dumps(CALL, indent=2)}\n```\n",
        f"<tool_call>{json.dumps(CALL)}</tool_call>",
        f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>\n",
        f"```json\n{json.dumps({'function': CALL})}\n```",
        f"```json\n{json.dumps({'type': 'function', **CALL})}\n```",
        f"```json\n{json.dumps([CALL])}\n```",
        '```json\n{"name": "run_code", "arguments": {"code": """print(1)"""}}\n```',
        "```json\n{'name': 'run_code', 'arguments': {'code': 'print(1)'}}\n```",
        '```json\n{{"name": "run_code", "arguments": {{"code": "print(1)"}}}}\n```',
        '```json\n{"name": "run_code", "parameters": {"code": "print(1)"}}\n```',
        f"```json\n{json.dumps({**CALL, 'arguments': json.dumps(CALL['arguments'])})}\n```",
        f"<think>Let me see <b>\n</think>\n{json.dumps(CALL)}",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_calls_written_as_text_are_found(text, size):
    pieces = in_pieces(text, [size] * len(text))
    found = [one for one in pieces if not isinstance(one, tool_calls_in_text.Words)]
    assert len(found) == 1
    assert not "".join(
        one.text for one in pieces if isinstance(one, tool_calls_in_text.Words)
    ).strip()
    assert json.loads(found[0].arguments) == {"code": "print(1)"}


def test_call_whose_quotes_break_its_json_is_found():
    text = '```json\n{"name": "run_code", "arguments": {"code": "print(f"{x["a"]}")"}}\n```\n'
    (found,) = split(text)
    assert json.loads(found.arguments) == {"code": 'print(f"{x["a"]}")'}


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "Ann", "age": 5}\n```\n',
        '{"name": "rm", "arguments": {}}',
        "{not json",
        "<tool_call>nonsense</tool_call>",
        "<tool_call>never closed",
        "a < b and <tool",
        "``",
        "`code` and ``more``",
    ],
)
def test_what_is_no_call_is_words(text):
    assert split(text) == [tool_calls_in_text.Words(text)]


def test_thoughts_are_nobodys_business():
    assert split("<think>hm\n```python\nx\n```\n</think>Hi.") == [tool_calls_in_text.Words("Hi.")]


def test_words_are_not_held_back():
    splitter = tool_calls_in_text.Parser(tools.KNOWN, takes_python=True)
    assert splitter.feed("Hello") == [tool_calls_in_text.Words("Hello")]
    assert splitter.feed(" world.\n") == [tool_calls_in_text.Words(" world.\n")]
    assert splitter.feed("``") == []
    assert splitter.feed("code``") == [tool_calls_in_text.Words("``code``")]


@hypothesis.given(MARKED | st.text(), st.lists(st.integers(1, 9)), st.booleans())
def test_pieces_mean_the_same_as_the_whole(text, sizes, takes_python):
    whole = split(text, takes_python=takes_python)
    assert in_pieces(text, sizes, takes_python=takes_python) == whole


@hypothesis.given(st.text(alphabet="ab \n`~{}\"<>tol_ca/'"))
def test_text_without_calls_is_passed_on_unchanged(text):
    hypothesis.assume("run_code" not in text)
    assert "".join(one.text for one in split(text, takes_python=False)) == text


@hypothesis.given(MARKED)
def test_code_is_written_before_it_is_a_block(text):
    pieces = split(text)
    written = "".join(one.text for one in pieces if isinstance(one, tool_calls_in_text.Writing))
    assert written == "".join(
        one.code for one in pieces if isinstance(one, tool_calls_in_text.Block)
    )


def test_a_model_that_thinks_for_long_keeps_nobody_waiting():
    splitter = tool_calls_in_text.Parser(tools.NAMES, takes_python=True)
    started = time.process_time()
    pieces = []
    for letter in "<think>" + "hm " * 50_000 + "</think>\nHello":
        pieces += splitter.feed(letter)
    pieces += splitter.finish()
    assert "".join(piece.text for piece in pieces).strip() == "Hello"
    assert time.process_time() - started < 3


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_what_follows_a_thought_is_not_lost(size):
    text = "<think>a < b </thin k</think>Hello\nyou"
    splitter = tool_calls_in_text.Parser(tools.NAMES, takes_python=True)
    pieces = []
    for start in range(0, len(text), size):
        pieces += splitter.feed(text[start : start + size])
    pieces += splitter.finish()
    assert "".join(piece.text for piece in pieces) == "Hello\nyou"
