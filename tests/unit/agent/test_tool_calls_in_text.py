"""What a model writes into its text is found, however the text is cut into pieces."""

# Markups are written as models write them.
# ruff: noqa: E501

import json
import re
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import chat_messages, tool_calls_in_text, tools, written_calls

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
    splitter = tool_calls_in_text.Parser(finds_calls=True, takes_python=takes_python)
    pieces = []
    while text:
        size = sizes.pop() if sizes else len(text)
        pieces += splitter.feed(text[:size])
        text = text[size:]
    pieces += splitter.finish()
    joined = []
    for piece in pieces:
        if joined and type(piece) is type(joined[-1]) and hasattr(piece, "text"):
            joined[-1] = type(piece)(joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


def test_block_is_code_and_the_rest_is_words():
    assert split("Look:\n```python\nprint(1)\n```\nDone.") == [
        tool_calls_in_text.Words("Look:\n"),
        tool_calls_in_text.CodeDelta("print(1)\n"),
        tool_calls_in_text.CodeBlock("print(1)\n"),
        tool_calls_in_text.Words("Done."),
    ]


@pytest.mark.parametrize(
    "opening", ["```python", "```py", "``` Python ", "~~~python3", "  ```ipython"]
)
def test_openings_of_python(opening):
    closing = opening.strip()[:3]
    pieces = split(f"{opening}\nx\n{closing}\n")
    assert pieces == [tool_calls_in_text.CodeDelta("x\n"), tool_calls_in_text.CodeBlock("x\n")]


def test_block_that_nobody_closed_is_a_block():
    assert split("```python\nx")[-1] == tool_calls_in_text.CodeBlock("x", is_closed=False)


def test_fence_inside_a_string_of_code_does_not_close_a_longer_one():
    code = 'print("""\n```\nx\n```\n""")\n'
    assert split(f"````python\n{code}````\n")[-1] == tool_calls_in_text.CodeBlock(code)


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


CODE = "a=6\nprint('ANS',a*7)"
GIVEN = json.dumps({"code": CODE})
NAMED = json.dumps({"name": "run_code", "arguments": {"code": CODE}})
MARKUPS = {
    "hermes": f"<tool_call>\n{NAMED}\n</tool_call>",
    "hermes2": f"Let me.\n<tool_call>{NAMED}</tool_call>\n<tool_call>{NAMED}</tool_call>",
    "qwen": f"<tool_call>\n<function=run_code>\n<parameter=code>\n{CODE}\n</parameter>\n</function>\n</tool_call>",
    "qwenbare": f"<function=run_code>\n<parameter=code>\n{CODE}\n</parameter>\n</function>",
    "llama31": f"<function=run_code>{GIVEN}</function>",
    "llamapt": f'<|python_tag|>{{"name": "run_code", "parameters": {GIVEN}}}<|eom_id|>',
    "harm": f"<|channel|>analysis<|message|>We need.<|end|><|start|>assistant<|channel|>commentary to=functions.run_code <|constrain|>json<|message|>{GIVEN}<|call|>",
    "harm2": f"<|start|>assistant to=functions.run_code<|channel|>commentary json<|message|>{GIVEN}",
    "harmpy": f"<|channel|>commentary to=python code<|message|>{CODE}<|call|>",
    "mistral": f"[TOOL_CALLS][{NAMED}]",
    "mistral2": f"[TOOL_CALLS] [{NAMED}]</s>",
    "mistralargs": f"[TOOL_CALLS]run_code[ARGS]{GIVEN}",
    "mistralid": f"[TOOL_CALLS]run_code[CALL_ID]abc123[ARGS]{GIVEN}",
    "ds": f"<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>function<\uff5ctool▁sep\uff5c>run_code\n```json\n{GIVEN}\n```<\uff5ctool▁call▁end\uff5c><\uff5ctool▁calls▁end\uff5c><\uff5cend▁of▁sentence\uff5c>",
    "ds31": f"<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>run_code<\uff5ctool▁sep\uff5c>{GIVEN}<\uff5ctool▁call▁end\uff5c><\uff5ctool▁calls▁end\uff5c>",
    "dsml": f'<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="run_code">\n<\uff5cDSML\uff5cparameter name="code" string="true">{CODE}</\uff5cDSML\uff5cparameter>\n</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>',
    "anth": f'<function_calls>\n<invoke name="run_code">\n<parameter name="code">{CODE}</parameter>\n</invoke>\n</function_calls>',
    "anth2": f'<invoke name="run_code">\n<parameter name="code">{CODE}</parameter>\n</invoke>',
    "minimax": f'<minimax:tool_call>\n<invoke name="run_code">\n<parameter name="code">{CODE}</parameter>\n</invoke>\n</minimax:tool_call>',
    "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.run_code:0<|tool_call_argument_begin|>{GIVEN}<|tool_call_end|><|tool_calls_section_end|>",
    "granite": f"<|tool_call|>[{NAMED}]",
    "phi": f"<|tool_call|>[{NAMED}]<|/tool_call|>",
    "cohere": f'<|START_ACTION|>[{{"tool_call_id":"0","tool_name":"run_code","parameters":{GIVEN}}}]<|END_ACTION|>',
    "seed": f"<seed:tool_call><function=run_code><parameter=code>{CODE}</parameter></function></seed:tool_call>",
    "functioncall": f"<functioncall> {NAMED}",
    "function_call": f"<function_call>{NAMED}</function_call>",
    "tooluse": f"<tool_use>{NAMED}</tool_use>",
    "plain": NAMED,
    "plain2": f"I run this:\n{NAMED}",
    "list": f"[{NAMED}]",
    "param": f'{{"name": "run_code", "parameters": {GIVEN}}}',
    "openai": json.dumps(
        {
            "tool_calls": [
                {
                    "id": "x",
                    "type": "function",
                    "function": {"name": "run_code", "arguments": GIVEN},
                }
            ]
        }
    ),
    "fence": f"```json\n{NAMED}\n```",
    "fence0": f"```\n{NAMED}\n```",
    "xmlfence": f"```xml\n<tool_call>{NAMED}</tool_call>\n```",
    "thinkcall": f"<think>hm\n<tool_call>{NAMED}</tool_call>",
    "decor": f'{{"name": "functions.run_code", "arguments": {GIVEN}}}',
    "strargs": json.dumps({"name": "python", "arguments": GIVEN}),
}


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("markup", MARKUPS)
def test_calls_in_the_markups_of_many_models_are_found(markup, size):
    text = MARKUPS[markup]
    pieces = in_pieces(text, [size] * len(text), takes_python=False)
    calls = [one for one in pieces if isinstance(one, tool_calls_in_text.ParsedCall)]
    assert len(calls) == (2 if markup == "hermes2" else 1)
    for call in calls:
        made = chat_messages.Call("1", call.name, call.arguments)
        assert tools.parse_call(made) == tools.RunCode(CODE)
    words = [one.text for one in pieces if isinstance(one, tool_calls_in_text.Words)]
    assert "ANS" not in "".join(words)


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "run_code", "arguments": {"code": "print(f"{x["a"]}")"}}\n```\n',
        '<tool_call>{"name": "run_code", "arguments": {"code": "print(1)</tool_call>',
        "<tool_call>\n<function=run_code>\n<parameter=code>\nprint(1)\n</function>",
        "<call:run_code>print(1)</call>",
        "[TOOL_CALLS]what is this",
        "<|tool_call|>what is this",
        '<|strange_call|>{"tool": run_code, code: print(1)}',
        "run_code(code=x)",
        "<|unknown|><|tool|>run_code: print(1)<|end_of_it|>",
        "<tool_call>run_code\n<arg_key>code</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "```tool_code\nprint(run_code(code='1'))\n```",
    ],
)
@pytest.mark.parametrize("size", [1, 10_000])
def test_a_call_that_cannot_be_read_is_neither_run_nor_shown(text, size):
    pieces = in_pieces(text, [size] * len(text), takes_python=False)
    kinds = {type(one) for one in pieces if not str(getattr(one, "text", "x")).startswith("<|unk")}
    assert kinds == {tool_calls_in_text.UnreadableCall}


ANSWERS = [
    "It is 42.",
    "Use the <tool_call> tag to call tools.",
    '{"a": 1, "b": [1,2]}',
    '{"name": "Ann", "age": 5}',
    "I used run_code to compute it.",
    "Models think in <think> and </think> tags, you see.",
    "`<think>` is a tag.\n\nFine.",
    "```\n<think>\n```\nx",
    "a < b and c<d [x] {y}",
    "List<int> and <b>bold</b> <function-plot>",
    "{not json",
    "[1, 2, 3]",
    "<tool_call>nonsense</tool_call>",
    "You can call run_code() yourself.",
    "Hi.\n<think> is a tag that models write.",
    '{"type": "bar", "x": 1}',
    "- run_code: runs Python\n- list_files: lists",
    '```json\n{"name": "Ann"}\n```\nok',
    "Run `run_code(code='x')` yourself.",
    "[a](b.csv) and [THIS] or [TODO] ok",
    "```python\nprint('<tool_call>')\n```",
    "Actions: run.\nAction: none",
    "[run_code](docs.md) runs Python.",
    "The token <|tool_call|> marks a call in that model.",
    "Two tools:\n* run_code\n| run_code | runs |",
]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("text", ANSWERS)
def test_answers_that_only_look_alike_are_shown(text, size):
    words = tool_calls_in_text.Words(text)
    assert in_pieces(text, [size] * len(text), takes_python=False) == [words]
    assert not written_calls.has_unmarked_call(text)


THOUGHTS = {
    "<think>hm</think>It is 42.": "It is 42.",
    "Okay.\n</think>\n\nIt is 42.": "It is 42.",
    "<thinking>\nhm\n</thinking>\n\nIt is 42.": "It is 42.",
    "<reasoning>x</reasoning>It is 42.": "It is 42.",
    "[THINK]x[/THINK]It is 42.": "It is 42.",
    "Sure! <think>hm</think>It is 42.": "Sure! It is 42.",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|return|>": "It is 42.",
    "<think>a</think><think>b</think>It is 42.": "It is 42.",
    "So it is <think>let me see</think>42.": "So it is 42.",
    "Write <think>a</think> there.": "Write <think>a</think> there.",
    "The <thinking> tag is a tag.": "The <thinking> tag is a tag.",
    "It is 42.\n<think>hm": "It is 42.\n<think>hm",
    "<think>It is 42.": "It is 42.",
}


@pytest.mark.parametrize("habit", [True, False])
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("text", THOUGHTS)
def test_thoughts_are_hidden_and_answers_are_not(text, size, habit):
    parser = tool_calls_in_text.Parser(finds_calls=True, begins_in_thought=habit)
    shown = []
    for start in range(0, len(text), size):
        shown += parser.feed(text[start : start + size])
    shown += parser.finish()
    while tool_calls_in_text.ForgetWords() in shown:
        shown = shown[shown.index(tool_calls_in_text.ForgetWords()) + 1 :]
    assert "".join(piece.text for piece in shown).strip() == THOUGHTS[text]


def test_a_model_is_known_by_its_first_reply():
    parser = tool_calls_in_text.Parser(finds_calls=True)
    assert parser.feed("Hm, 6*7.\n") == [tool_calls_in_text.Words("Hm, 6*7.\n")]
    assert parser.feed("</think>\n\n") == [tool_calls_in_text.ForgetWords()]
    assert parser.feed("It is") == [tool_calls_in_text.Words("It is")]
    assert parser.begins_in_thought is True
    parser = tool_calls_in_text.Parser(finds_calls=True, begins_in_thought=True)
    assert parser.feed("Hm, 6*7.\n</think>\n\n") == []
    assert parser.feed("It is") == [tool_calls_in_text.Words("It is")]
    parser = tool_calls_in_text.Parser(finds_calls=True, begins_in_thought=True)
    assert parser.feed("It is 42.") == []
    assert parser.finish() == [tool_calls_in_text.Words("It is 42.")]
    assert parser.begins_in_thought is False


def test_an_answer_that_begins_with_a_brace_is_streamed():
    parser = tool_calls_in_text.Parser(finds_calls=True)
    assert parser.feed('{"total": ') == [tool_calls_in_text.Words('{"total": ')]
    assert parser.feed("42}") == [tool_calls_in_text.Words("42}")]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "```python\ns = '''\n```\nx\n```\n'''\nprint(1)\n```\nDone.",
            "s = '''\n```\nx\n```\n'''\nprint(1)\n",
        ),
        ("```python\nprint(1)\n```<end_code>", "print(1)\n"),
        ("```python\nprint(1)\n```<|im_end|>\n", "print(1)\n"),
        ("```python\nprint(1)```", "print(1)"),
        ("~~~~python\nprint(1)\n~~~\n~~~~\n", "print(1)\n~~~\n"),
        ("1. Do:\n   ```python\n   if x:\n       y\n   ```\n", "if x:\n    y\n"),
        ("```{python}\nprint(1)\n```", "print(1)\n"),
        ("```python\nx = '''never closed\n```\nwords", "x = '''never closed\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_block_ends_where_its_writer_meant_it(text, code, size):
    blocks = [
        one.code
        for one in in_pieces(text, [size] * len(text))
        if isinstance(one, tool_calls_in_text.CodeBlock)
    ]
    assert blocks == [code]


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
    splitter = tool_calls_in_text.Parser(finds_calls=True, takes_python=True)
    assert splitter.feed("Hello") == [tool_calls_in_text.Words("Hello")]
    assert splitter.feed(" world.\n") == [tool_calls_in_text.Words(" world.\n")]
    assert splitter.feed("``") == []
    assert splitter.feed("code`` ") == [tool_calls_in_text.Words("``code`` ")]


@hypothesis.given(MARKED | st.text(), st.lists(st.integers(1, 9)), st.booleans())
def test_pieces_mean_the_same_as_the_whole(text, sizes, takes_python):
    whole = split(text, takes_python=takes_python)
    assert in_pieces(text, sizes, takes_python=takes_python) == whole


@hypothesis.given(st.text(alphabet="ab \n`~{}\"<>tol_ca/'"))
def test_text_without_calls_is_passed_on_unchanged(text):
    hypothesis.assume("run_code" not in text)
    assert "".join(one.text for one in split(text, takes_python=False)) == text


def without_fences(code):
    return re.sub(r"`{3,}[ \t]*(?:<[^\n]*)?", "", code).strip()


@hypothesis.given(MARKED)
@hypothesis.example("```python\n<tool_call>```<tool_call>")
@hypothesis.example("```python\n~~~\n")
def test_code_is_written_before_it_is_a_block(text):
    pieces = split(text)
    written = "".join(one.text for one in pieces if isinstance(one, tool_calls_in_text.CodeDelta))
    blocks = [one.code for one in pieces if isinstance(one, tool_calls_in_text.CodeBlock)]
    # A fence at the end of a line of code, with a tag behind it, is known only afterwards.
    assert without_fences(written) == without_fences("".join(blocks))


def test_a_model_that_thinks_for_long_keeps_nobody_waiting():
    splitter = tool_calls_in_text.Parser(finds_calls=True, takes_python=True)
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
    splitter = tool_calls_in_text.Parser(finds_calls=True, takes_python=True)
    pieces = []
    for start in range(0, len(text), size):
        pieces += splitter.feed(text[start : start + size])
    pieces += splitter.finish()
    assert "".join(piece.text for piece in pieces) == "Hello\nyou"


@pytest.mark.first_case
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>run_code" + "\n" * 90_000,
        "<tool_call>" + '<invoke name="run_code"><parameter name="code">' * 2000,
        "<tool_call>" + "run_code<arg_key>a</arg_key><arg_value>" * 2000,
        "<tool_call>" + "<function=run_code>" * 4000,
        "<tool_call>" + "call:run_code{code:<escape>" * 3000,
        "run_code (" + " " * 90_000,
        "<run_code" + " " * 90_000,
        "<think>\n" * 12_000,
        "<|channel|>commentary to=functions.run_code " * 2000,
        "Action: run_code" + "\n" * 90_000,
    ],
    ids=lambda text: text[:30],
)
def test_a_reply_that_repeats_itself_is_read_quickly(text):
    began = time.process_time()
    pieces = in_pieces(text, [], takes_python=False)
    words = "".join(piece.text for piece in pieces if isinstance(piece, tool_calls_in_text.Words))
    written_calls.has_unmarked_call(words)
    assert time.process_time() - began < 1.0


def test_a_call_that_is_nested_too_deeply_is_no_call():
    # Some depths are within the limit of the decoder, but not of what reads its result.
    for depth in range(880, 1000, 3):
        text = "<tool_call>" + '{"function":' * depth + "1" + "}" * depth
        pieces = in_pieces(text, [], takes_python=False)
        assert not any(isinstance(piece, tool_calls_in_text.ParsedCall) for piece in pieces)


@pytest.mark.parametrize(
    "line",
    [f"```{'a' * 100_000}`\n", f"```{' ' * 100_000}`\n", f"{'~' * 100_000}`\n"],
    ids=["word", "blanks", "tildes"],
)
def test_a_long_line_that_is_no_fence_takes_no_time(line):
    began = time.process_time()
    assert split(line) == [tool_calls_in_text.Words(line)]
    assert time.process_time() - began < 3
