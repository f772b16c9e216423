"""Addresses in streams: Slack could fetch them, and so what a model was told to put there.

Formulas become code there as well.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot.platforms.slack import markdown
from interpreter_bot.text import fences
from tests.fakes import conversations as fake

SAID = """\
See https://a.example/x?q=1, [the page](https://b.example/y "title") and <https://c.example>.
That \\(a_1\\) costs $5.
A span `curl https://d.example`, a stray ` mark, then https://e.example/z**.

```sh
curl https://f.example/g
```
{long} done: [1]: https://h.example
"""


async def test_no_link_in_a_stream_can_be_fetched(slack, service, app):
    text = SAID.format(long="https://i.example/" + "k" * 300)

    async def script(turn):
        turn.reply.step(1)
        chance = random.Random(3)
        rest = text
        while rest:
            size = chance.randint(1, 9)
            turn.reply.text(rest[:size])
            rest = rest[size:]
            if chance.random() < 0.1:
                await slack.until(lambda: True)
        await slack.until(lambda: "e.example" in str(slack.called("chat.appendStream")))
        await turn.reply.code(0, "get('https://j.example')")
        turn.reply.finished(0, fake.finished_well())

    service.script = script
    ts = slack.say("U1", "DU1", "go")
    await slack.until(lambda: slack.status("DU1", ts) == "active")
    shown = "".join(
        chunk.get("text", "")
        for call in [*slack.called("chat.startStream"), *slack.called("chat.appendStream")]
        for chunk in call["chunks"]
    )
    assert 'See `https://a.example/x?q=1`, [the page] (`https://b.example/y` "title")' in shown
    assert "and `https://c.example`.\nThat `a_1` costs $5." in shown
    assert "`curl https://d.example`" in shown
    assert "\ncurl https://f.example/g\n" in shown
    assert "`https://e.example/z`**" in shown


def test_an_address_keeps_its_parentheses():
    text = "See https://a.example/b_(c), [it](https://a.example/b_(c)) (https://d.example/[e])."
    assert markdown.prepare_for_stream(text, None) == (
        "See `https://a.example/b_(c)`, [it] (`https://a.example/b_(c)`) (`https://d.example/[e]`)."
    )


@given(st.text(alphabet="`a ](<>https://x.y\n", max_size=80))
def test_every_address_outside_of_code_becomes_code(text):
    shown = markdown.prepare_for_stream(text.replace("```", "``"), None)
    outside = markdown._CODE_SPAN.sub("", shown)
    assert "http://" not in outside
    assert "https://" not in outside


@pytest.mark.parametrize(
    ("code", "closing"),
    [
        ("~~~sh\n```\nhttps://a.example\n", "~~~"),
        ("````\n```\nhttps://a.example\n", "`````"),
        ("- a\n\n      ```\n      https://a.example\n", "      ```"),
    ],
)
def test_addresses_in_code_of_any_fence_are_left(code, closing):
    *_, (_, _, fence) = fences.track_fences(code.splitlines(keepends=True))
    assert fence is not None
    whole, after = f"{code}{closing}\n", "https://b.example\n"
    assert markdown.prepare_for_stream(whole + after, None) == whole + "`https://b.example`\n"
    assert markdown.prepare_for_stream(f"https://a.example\n{closing}\n{after}", fence) == (
        f"https://a.example\n{closing}\n`https://b.example`\n"
    )
