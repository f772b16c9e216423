"""Code as people write it into chats."""

import time

import pytest

from interpreter_bot.text import code_reading

FENCE = "```"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print(1)", "print(1)"),
        ("for x in y:\n    print(x)\n", "for x in y:\n    print(x)"),
        ("```py\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)```", "print(1)"),
        ("```Python3\r\nprint(1)\r\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("```print(1)```", "print(1)"),
        ("```py print(1)```", "print(1)"),
        ("```import os\nprint(1)```", "import os\nprint(1)"),
        ("```df```", "df"),
        ("```py\nprint(1)", "print(1)"),
        ("Please run ```py\nx = 1\nprint(x)``` for me", "x = 1\nprint(x)"),
        ("a\n```py\nx = 1\n```\nb\n```\nprint(x)\n```", "x = 1\n\nprint(x)"),
        ("```py\nx = 1``` and ```py\ny = 2```", "x = 1\n\ny = 2"),
        ("```py\nx = '```'\nprint(x)\n```", "x = '```'\nprint(x)"),
        ('```py\nx = """\n```\n"""\nprint(x)```', 'x = """\n```\n"""\nprint(x)'),
        ("```py\n# don't```", "# don't"),
        ("it's ```x = 'a'```", "x = 'a'"),
        ("```json\n{}\n```\n```py\nx = 1\n```", "x = 1"),
        ("```bash\n!ls\n```", "!ls"),
        ("~~~py\nx = '```'\n~~~~", "x = '```'"),
        ("- a\n  ```py\n  if x:\n    y\n  ```", "if x:\n  y"),
        ("````\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
        ("\u2068```py\nprint(1)\n```\u2069", "print(1)"),
        ("```py\u200b\nprint(1)\n```", "print(1)"),
        ("`print(1)`", "print(1)"),
        ("``print(1)``", "print(1)"),
        ("`print(1)", "print(1)"),
        ("run `1 + 1` please", "1 + 1"),
        ("print('`x`')", "print('`x`')"),
        ('print("```")', 'print("```")'),
        ('print("```a```")', 'print("```a```")'),
        ("print(\u201ca\u201d, \u2018b\u2019)", "print(\"a\", 'b')"),
        ("print(\u201eGruß\u201c)", 'print("Gruß")'),
        ("print(\u201cit\u2019s\u201d)", 'print("it\u2019s")'),
        ("print(\u2018it\u2019s\u2019)", "print('it\u2019s')"),
        ("print('\u201cx')", "print('\u201cx')"),
        ("print(\u201cx", 'print("x'),
        ("x = \u201c\u201d\u201ca\nb\u201c\u201d\u201d", 'x = """a\nb"""'),
        ("# \u201cquoted\u201d\nx", "# \u201cquoted\u201d\nx"),
        ("if x:\n\u00a0\u00a0\u00a0\u00a0print(\u202f1)", "if x:\n    print( 1)"),
        ("print('a\u00a0b')", "print('a\u00a0b')"),
        ("\u2068print\u2069(\u200b1)\ufeff", "print(1)"),
        (
            "print('\u05d0\u200f\U0001f468\u200d\U0001f33e')",
            "print('\u05d0\u200f\U0001f468\u200d\U0001f33e')",
        ),
        ("x \u2013 1 \u2212 2", "x - 1 - 2"),
        ("print(\u2026)", "print(...)"),
    ],
)
def test_what_is_meant_as_code(text, code):
    assert code_reading.read_as_code(text) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\n```py\nx = 1\n```\nb\n```\ny\n```", "x = 1\n\ny"),
        ("```js\nalert()\n```", ""),
        ("run `1 + 1` please", "1 + 1"),
        ("nothing", ""),
        ("so:\n```\nunclosed", "unclosed"),
        ("don't know what ``` means", ""),
        ("why is it```py\nx = 1```", "x = 1"),
    ],
)
def test_code_among_words(text, code):
    assert code_reading.find_python(text) == code


@pytest.mark.parametrize(
    "text",
    [
        "`",
        "```",
        '"',
        "'\\",
        '"\\"',
        '"""',
        "'''\"\"\"",
        "#```",
        "\u201c",
        "\u2018a",
        "\\",
        "~~~\n",
        "```py\n",
    ],
)
def test_hostile_text_takes_linear_time(text):
    began = time.process_time()
    for start in ("", "```py\n", "'", '"""'):
        whole = start + text * (40_000 // len(text))
        code_reading.read_as_code(whole)
        code_reading.find_python(whole)
    assert time.process_time() - began < 8
