"""What is shown in a message and what becomes a file."""

import base64
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot import values
from interpreter_bot.platforms.rendering import (
    display_items,
    html_content,
    output_selection,
)
from interpreter_bot.text import output_screens

CHAT = display_items.Capabilities(
    text_characters=200, text_lines=10, max_table_width=30, max_table_rows=3
)
WEB = display_items.Capabilities(
    text_characters=10_000,
    pictures=display_items.RASTER_TYPES | {"image/svg+xml"},
    has_html=True,
    has_latex=True,
    shows_table=lambda table: True,
)
PNG = b"\x89PNG-preview"


def chosen(*outputs, can=CHAT, chooser=None):
    screen = output_screens.Screen()
    for output in outputs:
        screen.show(output)
    return (chooser or output_selection.OutputSelector(can)).choose(0, screen.items)


def table(columns, *rows, row_count=None):
    return values.Table(
        columns=tuple(columns),
        rows=tuple(map(tuple, rows)),
        row_count=row_count or len(rows),
        column_count=len(columns),
    )


def test_short_text_is_said_and_of_long_text_both_ends_before_a_file():
    assert chosen(values.Text("stdout", "hi\n")) == (display_items.TextItem("hi"),)
    text = "".join(f"line {number}\n" for number in range(50))
    head, file = chosen(values.Text("stdout", text))
    lines = [f"line {number}" for number in (*range(7), 47, 48, 49)]
    assert head.text.split("\n") == [*lines[:7], "… 10 of 50 lines shown …", *lines[7:]]
    assert (file.name, file.data) == ("output-1.txt", text.encode())


def test_all_that_was_printed_is_one_file_in_order():
    found = chosen(*(values.Text(("stdout", "stderr")[i % 2], f"{i:40}\n") for i in range(20)))
    files = [item for item in found if isinstance(item, display_items.FileItem)]
    assert len(files) == 1
    assert found[-1] is files[0]
    assert files[0].data.decode().split() == [str(number) for number in range(20)]


@given(st.text(), st.text())
def test_what_is_said_is_within_the_limit(one, other):
    can = display_items.Capabilities(text_characters=20, text_lines=3)
    found = chosen(values.Text("stdout", one), values.Result(plain=other), can=can)
    texts = [item.text for item in found if isinstance(item, display_items.TextItem)]
    shown = [re.sub(r"\n?… [\d,]+ of [\d,]+ \w+ shown …\n?", "", text) for text in texts]
    # A value is shown in any case, as far as a quarter of the limit reaches.
    assert sum(map(len, shown)) <= 20 + 5


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("a" * 10 + "\n", "b" * 70 + "\n", "c" * 10), ["a" * 10, "b\n… ", "c" * 10]),
        (("".join(f"{n}\n" for n in range(99)), "the end\n"), ["0\n1\n", "the end"]),
        (("first\n", "".join(f"{n}\n" for n in range(99))), ["first", "\n97\n98"]),
    ],
)
def test_the_end_of_what_is_printed_is_always_visible(texts, expected):
    can = display_items.Capabilities(text_characters=44, text_lines=9)
    outputs = [values.Text(("stdout", "stderr")[i % 2], text) for i, text in enumerate(texts)]
    found = chosen(*outputs, can=can)
    shown = [item.text for item in found if isinstance(item, display_items.TextItem)]
    assert sum("… " in text for text in shown) == 1
    assert all(any(part in text for text in shown) for part in expected)
    assert found[-1].data.decode() == "".join(texts)


def test_a_value_is_visible_after_much_that_was_printed():
    found = chosen(values.Text("stdout", "x\n" * 999), values.Result(plain="42"))
    assert display_items.TextItem("42") in found


def test_of_a_long_traceback_the_end_is_shown():
    error = values.Error("E", "m", "x\n" * 400 + "E: m")
    code, file = chosen(error)
    assert code.text.endswith("x\nE: m")
    assert code.language == "traceback"
    assert len(code.text.splitlines()) <= 10
    assert file.data.decode() == error.traceback


def test_pictures_are_numbered_by_what_they_are():
    figure = values.Image(mime="image/png", data=b"1", plain="<Figure size 640x480 with 1 Axes>")
    photo = values.Image(mime="image/jpeg", data=b"2", plain="<PIL.Image>")
    moving = values.Image(mime="image/gif", data=b"3")
    found = chosen(figure, photo, figure, moving)
    assert [item.name for item in found] == [
        "figure-1.png",
        "image-1.jpg",
        "figure-2.png",
        "animation-1.gif",
    ]
    assert found[0].alt == "Figure 1"


def test_a_picture_keeps_its_name_when_it_is_chosen_again_and_no_other_gets_it():
    chooser = output_selection.OutputSelector(CHAT)
    image = values.Image(mime="image/png", data=b"1")
    (first,) = chosen(image, chooser=chooser)
    assert chosen(image, chooser=chooser) == (first,)
    screen = output_screens.Screen()
    screen.show(image)
    assert chooser.choose(1, screen.items)[0].name == "image-2.png"


def test_a_drawing_is_a_picture_and_a_file_where_it_cannot_be_shown():
    svg = values.Image(mime="image/svg+xml", data=b"<svg/>", preview=PNG)
    picture, file = chosen(svg)
    assert (picture.name, picture.data) == ("drawing-1.png", PNG)
    assert (file.name, file.data) == ("drawing-1.svg", b"<svg/>")
    (shown,) = chosen(svg, can=WEB)
    assert (shown.name, shown.data) == ("drawing-1.svg", b"<svg/>")


def test_a_page_is_a_file_with_a_preview():
    page = values.Html(html=b"<script>x</script>", title="Sales / by region", preview=PNG)
    picture, file = chosen(page)
    assert (picture.name, picture.alt) == ("sales-by-region.png", "Preview: Sales / by region")
    assert (file.name, file.data) == ("sales-by-region.html", b"<script>x</script>")
    (shown,) = chosen(page, can=WEB)
    assert shown == display_items.PageItem("sales-by-region.html", page.html, page.title)


def test_a_page_without_a_preview_says_what_it_is():
    said, file = chosen(values.Html(html=b"<svg></svg>", plain="figure: scatter"))
    assert said == display_items.TextItem("figure: scatter")
    assert file.name == "page-1.html"


def test_html_that_is_words_is_said():
    assert chosen(values.Html(html=b"<b>x</b> &amp; <p>y</p>", plain="<HTML object>")) == (
        display_items.TextItem("x &\ny"),
    )


@pytest.mark.parametrize(
    ("mime", "name"), [("audio/wav", "sound-1.wav"), ("video/mp4", "video-1.mp4")]
)
def test_sound_and_video_are_files(mime, name):
    tag = mime.partition("/")[0]
    data = base64.b64encode(b"RIFF").decode()
    html = f'<{tag} controls><source src="data:{mime};base64,{data}" /></{tag}>'
    for can in (CHAT, WEB):
        (file,) = chosen(values.Html(html=html.encode()), can=can)
        assert (file.name, file.data) == (name, b"RIFF")


def test_looking_for_a_player_takes_no_longer_on_a_long_page():
    def seconds(count):
        began = time.process_time()
        html_content.extract_media(b"<audio " * count)
        return time.process_time() - began

    assert min(seconds(10_000) for _ in range(3)) < 4 * max(seconds(600) for _ in range(3))


def test_a_broken_player_is_a_page():
    html = b'<audio><source src="data:audio/wav;base64,A" /></audio>'
    (file,) = chosen(values.Html(html=html))
    assert file.name == "page-1.html"


def test_a_small_table_is_drawn_and_a_larger_one_is_csv_too():
    (small,) = chosen(table(["a"], ["1"]))
    assert small.text.splitlines()[0] == "a"
    for large in (table(["a"], *[["1"]] * 5), table(["a" * 20, "b" * 20], ["=1", "-2"])):
        drawn, file = chosen(large)
        assert isinstance(drawn, display_items.TableItem)
        assert max(map(len, drawn.text.splitlines()[:-1])) <= 30
        assert file.name == "table-1.csv"
    assert file.data.decode().splitlines()[1] == "'=1,-2"
    assert len(chosen(table(["a"], *[["1"]] * 5), can=WEB)) == 1


@pytest.mark.parametrize(
    ("rows", "columns", "cell", "name", "about"),
    [
        (200, 2, "1", "table-1-first-5-of-200-rows.csv", "only the first 5 of 200 rows"),
        (5, 60, "1", "table-1-first-2-of-60-columns.csv", "only the first 2 of 60 columns"),
        (5, 2, "x" * 499 + "…", "table-1-long-values-cut.csv", "long values are cut"),
        (5, 2, "1", "table-1.csv", "5 rows x 2 columns"),
    ],
)
def test_a_file_of_what_is_shown_of_a_table_says_how_much_that_is(rows, columns, cell, name, about):
    shown = values.Table(
        columns=("", "a", "b"),
        rows=(("0", cell, "1"),) * 5,
        row_count=rows,
        column_count=columns,
        index_count=1,
    )
    _, file = chosen(shown)
    assert (file.name, file.about) == (name, about)


def test_a_formula_is_drawn_shown_or_said():
    formula = values.Latex(latex="$x$", plain="x", preview=PNG)
    assert chosen(formula) == (display_items.PictureItem("formula-1.png", "image/png", PNG, "x"),)
    assert chosen(formula, can=WEB) == (display_items.CodeItem("$x$", "latex"),)
    assert chosen(values.Latex(latex="$x$", plain="x")) == (display_items.TextItem("x"),)


def test_documents_and_notices():
    assert chosen(values.Json(json="{}"), values.Notice("Cut.")) == (
        display_items.CodeItem("{}", "json"),
        display_items.NoteItem("Cut."),
    )


@given(st.text(max_size=300))
def test_no_title_makes_a_name_that_leads_anywhere(title):
    name = chosen(values.Html(html=b"<svg></svg>", title=title))[-1].name
    assert name.endswith(".html")
    assert not set(name) & set('/\\:*?"<>|\0 \n')
    assert not name.startswith((".", "-"))
    assert len(name) < 70


@pytest.mark.parametrize(
    "plain", ["<Figure size 1x1>", "<a.B object at 0x1>", "", "Figure({\n1\n})"]
)
def test_what_says_nothing(plain):
    assert not html_content.is_meaningful(plain)
