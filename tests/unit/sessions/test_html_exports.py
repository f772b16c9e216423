"""A conversation as a page: nothing that was said or shown becomes a part of it that acts."""

import hashlib
import html.parser
import time

import pytest

from interpreter_bot import events, values
from interpreter_bot.sessions import exports, html_exports, markdown_rendering
from tests.fakes import past_turns

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(3)</script></svg>"
PAGE = b"<b>bold</b><img src=http://127.0.0.1:9/x onerror=alert(4)>"
SCRIPTED = b"<SCRIPT>alert(5)</SCRIPT>"


class Reader(html.parser.HTMLParser):
    """What a browser would make of a page."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def digest(data):
    return hashlib.sha256(data).hexdigest()


def display(mime, data):
    shown = values.StoredDisplay(mime=mime, sha256=digest(data), size_bytes=len(data), plain=ATTACK)
    return events.StoredDisplayShown(0, shown)


def turn(*happened, answer="", request=ATTACK):
    return past_turns.make_past_turn(
        *happened, request=request, attachments=(ATTACK,), answer=answer
    )


TABLE = values.Table(
    columns=(ATTACK,), rows=((ATTACK,),), row_count=7, column_count=1, index_count=0
)
EVERYTHING = (
    events.TextAdded(f"# Words\n\n{ATTACK}\n\n[x](javascript:alert(6)) [y](http://y.test/)"),
    events.CodeStarted(0, ATTACK),
    events.OutputShown(0, values.Text("stdout", ATTACK)),
    events.OutputShown(0, values.Error(ATTACK, ATTACK, ATTACK)),
    events.OutputShown(0, values.Notice(ATTACK)),
    events.OutputShown(0, TABLE),
    events.OutputShown(0, values.Latex(latex=ATTACK, plain=ATTACK)),
    events.OutputShown(0, values.Result(plain=ATTACK, is_markdown=True)),
    display("image/svg+xml", SVG),
    display("text/html", PAGE),
    display("text/html", SCRIPTED),
    display("image/png", b"gone"),
    events.NoticeShown(ATTACK),
)


async def page(turns, contents):
    drawn = await markdown_rendering.render(html_exports.markdown_texts(turns))
    return html_exports.write_page(ATTACK, turns, contents, drawn).decode()


async def test_nothing_hostile_acts_in_the_page():
    contents = {digest(data): data for data in (SVG, PAGE, SCRIPTED)}
    written = await page([turn(*EVERYTHING)], contents)
    reader = Reader()
    reader.feed(written)
    tags = reader.tags
    assert {tag for tag, _ in tags}.isdisjoint({"script", "object", "embed", "link", "form"})
    assert not [name for _, given in tags for name in given if name.startswith("on")]
    assert [given["href"] for tag, given in tags if tag == "a"] == ["http://y.test/"]
    assert all(given["src"].startswith("data:image/") for tag, given in tags if tag == "img")
    [frame] = [given for tag, given in tags if tag == "iframe"]
    assert (frame["sandbox"], frame["srcdoc"]) == (None, PAGE.decode())
    assert "script-src" not in written
    assert "default-src 'none'" in written
    assert "not in this file" in written
    assert "The first 1 of 7 rows." in written


@pytest.mark.first_case
@pytest.mark.parametrize(
    "piece", ["![", "![a](b ", "[", "[[]", "> ", "* ", "|a|b\n|-|-\n", "[a]: b\n"]
)
async def test_hostile_markdown_costs_the_bot_nothing_and_is_there_as_text(piece):
    hostile = piece * (90_000 // len(piece))
    began, used = time.monotonic(), time.process_time()
    written = await page([turn(events.TextAdded(hostile), events.TextAdded("**mine**"))], {})
    assert time.monotonic() - began < 30
    assert time.process_time() - used < 2
    assert "<strong>mine</strong>" in written


async def test_markdown_that_cannot_be_drawn_in_time_is_there_as_text():
    deep = "".join(f"{'> ' * 90}{'*a_b ' * 200}\n" for _ in range(80))
    drawn = await markdown_rendering.render(["x", deep, deep + "y", "x"])
    assert drawn["x"] == "<p>x</p>\n"
    assert len(drawn) == 3


def test_a_script_has_words_as_comments_and_divides_cells():
    parts = (events.TextAdded("One\n\ntwo"), events.CodeStarted(0, "x = 1\n"))
    written = exports.write_script([turn(*parts, request="Why?\nx")]).decode()
    assert written.startswith("# %% [markdown]\n# **Request:** Why?\n# x\n")
    assert written.endswith("# %% [markdown]\n# One\n#\n# two\n\n# %%\nx = 1\n")
    compile(written, "script", "exec")
