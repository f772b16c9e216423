"""What is shown of a display, and how much of an execution."""

import base64
import json
import time

import hypothesis
import pytest
from hypothesis import strategies

from interpreter_bot import settings, values
from interpreter_bot.kernels import mime_bundles, outputs
from interpreter_bot.kernels.wire import jupyter_messages

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
RASTERS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff" + b"pixels",
    "image/gif": b"GIF89a" + b"pixels",
    "image/webp": b"RIFF\0\0\0\0WEBP" + b"pixels",
}
TABLE = {
    "columns": ["", "a"],
    "rows": [["0", "x"], ["1", "y"]],
    "row_count": 9,
    "column_count": 1,
    "index_count": 1,
}
JSON = strategies.recursive(
    strategies.none() | strategies.integers() | strategies.text(strategies.characters(codec=None)),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=8,
)
FORMS = strategies.sampled_from([*(mime for mime, _, _ in mime_bundles._FORMS), "text/plain"])


def choose(data, max_bytes=1_000_000):
    return mime_bundles.choose_form(data, max_bytes=max_bytes)


def encoded(data):
    return base64.b64encode(data).decode()


def message(kind, **content):
    return jupyter_messages.Message("1", kind, content)


def display(kind="display_data", display_id=None, **data):
    return message(kind, data=data or {"text/plain": "x"}, transient={"display_id": display_id})


@pytest.mark.parametrize(("mime", "data"), RASTERS.items())
def test_images_are_decoded(mime, data):
    lines = "\n".join([encoded(data)[:6], encoded(data)[6:], ""])
    assert choose({mime: lines, "text/plain": "p"}) == values.Image(mime=mime, data=data, plain="p")


@pytest.mark.parametrize("mime", RASTERS)
@pytest.mark.parametrize(
    "form",
    [
        encoded(b"<script>"),
        encoded(b"RIFF\0\0\0\0WAVE"),
        "no base64!",
        encoded(PNG)[:-1] + "é",
        "",
        None,
        7,
        {"a": "b"},
        [1, 2],
    ],
)
def test_an_image_that_is_none_falls_back(mime, form):
    assert choose({mime: form, "text/html": "<b>"}) == values.Html(html=b"<b>")


def test_a_magic_of_another_kind_falls_back():
    data = {"image/jpeg": encoded(PNG), "text/plain": "p"}
    assert choose(data) == values.Result(plain="p")


def test_drawings_are_bytes_and_lines_are_joined():
    shown = choose({"image/svg+xml": ["<?xml?>\n", "<svg>\ud800é</svg>"]})
    assert shown == values.Image(mime="image/svg+xml", data="<?xml?>\n<svg>?é</svg>".encode())


def test_a_table_wins_over_html():
    shown = choose({"text/html": "<table>", mime_bundles.TABLE_MIME: TABLE})
    assert shown == values.Table(
        columns=("", "a"), rows=(("0", "x"), ("1", "y")), row_count=9, column_count=1, index_count=1
    )


def test_html_wins_over_the_figure_it_was_made_of():
    data = {"application/vnd.plotly.v1+json": {"data": []}, "text/html": "<div>"}
    assert choose(data) == values.Html(html=b"<div>")


def test_a_wide_and_long_table_is_cut_and_keeps_its_counts():
    row = ["\x1b[31m" + "c" * 600] * 150
    form = {"columns": row, "rows": [row] * 300, "row_count": 1, "column_count": 1}
    table = choose({mime_bundles.TABLE_MIME: form | {"index_count": 120}})
    assert (len(table.columns), len(table.rows), {len(row) for row in table.rows}) == (
        100,
        200,
        {100},
    )
    assert (table.row_count, table.column_count, table.index_count) == (300, 30, 100)
    assert table.rows[0][0] == "c" * 499 + "…"


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": None},
        {"columns": ["", 1]},
        {"rows": [["0"]]},
        {"rows": [["0", None]]},
        {"rows": ["ab"]},
        {"row_count": True},
        {"row_count": -1},
        {"row_count": 10**16},
        {"column_count": "1"},
        {"index_count": 3},
        {"index_count": None},
    ],
    ids=str,
)
def test_a_table_that_is_none_falls_back(wrong):
    data = {mime_bundles.TABLE_MIME: TABLE | wrong, "text/html": "<table>"}
    assert choose(data) == values.Html(html=b"<table>")


def test_json_is_indented_and_harmless():
    assert choose({"application/json": {"é": "\x1b[31m\x9b\ud800"}}).json == (
        '{\n  "é": "\\u001b[31m?"\n}'
    )


def test_json_that_grows_when_indented_is_too_large():
    form = json.loads("[" * 300 + "[1," * 300 + "1" + ",1" * 100_000 + "]" * 600)
    started = time.process_time()
    with pytest.raises(mime_bundles.DisplayTooLargeError, match="JSON"):
        choose({"application/json": form}, 10**9)
    assert time.process_time() - started < 2


def test_json_too_deep_falls_back():
    form = []
    for _ in range(5000):
        form = [form]
    assert choose({"application/json": form, "text/plain": "p"}) == values.Result(plain="p")


def test_a_long_formula_falls_back_and_a_short_one_is_clean():
    assert choose({"text/latex": "$\x1b[31mx$"}) == values.Latex(latex="$x$")
    assert choose({"text/latex": "$" * 200_000, "text/plain": "p"}) == values.Result(plain="p")


def test_plain_text_is_bounded_however_large():
    shown = choose({"text/plain": "x" * 5_000_000}, 1000)
    assert isinstance(shown, values.Result)
    assert 100_000 <= len(shown.plain) < 100_100


def test_size_is_bytes():
    assert choose({"text/html": "é" * 500}, 1000)
    with pytest.raises(mime_bundles.DisplayTooLargeError, match="1,002 bytes"):
        choose({"text/html": "é" * 501}, 1000)


@hypothesis.given(strategies.dictionaries(FORMS, JSON), strategies.integers(1, 50))
def test_no_bundle_breaks_the_choice(data, max_bytes):
    try:
        shown = choose(data, max_bytes)
    except mime_bundles.DisplayTooLargeError:
        return
    shown.plain.encode()


def test_too_large_a_display_is_said_with_size_and_kind_and_its_plain_text():
    reader = outputs.OutputReader(settings.Limits())
    data = {"image/png": "A" * (outputs.MAX_DISPLAY_BYTES + 1), "text/plain": "<Figure>"}
    assert reader.read(message("execute_result", data=data)) == (
        values.Notice("Too large to be shown: 12,582,913 bytes (PNG image)."),
        values.Result(plain="<Figure>"),
    )


def test_updates_carry_the_identity_they_replace():
    reader = outputs.OutputReader(settings.Limits())
    shown = [*reader.read(display(display_id="d"))]
    shown += reader.read(display("update_display_data", display_id="d"))
    assert [(output.display_id, output.is_update) for output in shown] == [
        ("d", False),
        ("d", True),
    ]


@pytest.mark.parametrize("display_id", ["", "d" * 129, "a\nb", "\ud800", 7, None, ["d"]])
def test_an_identity_that_is_none_is_left_out(display_id):
    (shown,) = outputs.OutputReader(settings.Limits()).read(
        display("update_display_data", display_id=display_id)
    )
    assert (shown.display_id, shown.is_update) == (None, False)


def test_updates_of_what_was_never_shown_count_as_displays():
    reader = outputs.OutputReader(settings.Limits(), max_displays=2)
    shown = [
        output
        for number in range(50)
        for output in reader.read(display("update_display_data", display_id=f"{number}"))
    ]
    assert [type(output) for output in shown] == [values.Result, values.Result, values.Notice]
    assert reader.dropped_display_count == 48


def test_errors_end_in_name_and_message():
    content = {"ename": "KeyError", "evalue": "'a'", "traceback": ["Cell 1, line 1", "    d['a']"]}
    (error,) = outputs.OutputReader(settings.Limits()).read(message("error", **content))
    assert error.traceback == "Cell 1, line 1\n    d['a']\nKeyError: 'a'"


def test_errors_do_not_say_their_message_twice():
    for evalue, ending in [("short", ""), ("long" * 900, ""), ("longer" * 1000, " …")]:
        lines = ["Cell 1, line 1", f"E: {evalue}{ending}"]
        content = {"ename": "E", "evalue": evalue, "traceback": lines}
        (error,) = outputs.OutputReader(settings.Limits()).read(message("error", **content))
        assert error.traceback == f"Cell 1, line 1\nE: {error.message}"


def test_errors_without_anything_are_still_errors():
    shown = outputs.OutputReader(settings.Limits()).read(message("error", traceback=7, ename=[]))
    assert shown == (values.Error("Error", "", "Error"),)


def test_errors_end_somewhere():
    reader = outputs.OutputReader(settings.Limits())
    shown = [reader.read(message("error", ename="E")) for _ in range(50)]
    assert sum(map(len, shown)) == 10


def test_clears_in_a_row_are_one():
    reader = outputs.OutputReader(settings.Limits())
    clears = [message("clear_output", wait=wait) for wait in (True, True, False, False, True)]
    shown = [output for clear in clears for output in reader.read(clear)]
    assert shown == [values.Clear(wait=True), values.Clear(wait=False)]


def test_nothing_is_cleared_once_output_was_cut():
    reader = outputs.OutputReader(settings.Limits(output_bytes=3))
    assert reader.read(message("clear_output")) == (values.Clear(wait=False),)
    reader.read(message("stream", name="stdout", text="abcd"))
    assert reader.read(message("clear_output")) == ()


@hypothesis.given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(["stdout", "stderr"]),
            # Control characters are left out, and count for nothing.
            strategies.text(strategies.characters(codec=None, exclude_categories=["Cc", "Cf"])),
        )
    ),
    strategies.integers(1, 30),
)
def test_printed_text_never_exceeds_its_budget(pieces, max_bytes):
    reader = outputs.OutputReader(settings.Limits(output_bytes=max_bytes))
    shown = [
        output
        for name, text in pieces
        for output in reader.read(message("stream", name=name, text=text))
    ]
    texts = [output for output in shown if isinstance(output, values.Text)]
    notices = [output for output in shown if isinstance(output, values.Notice)]
    assert all(output.text for output in texts)
    too_much = 0
    for name in ("stdout", "stderr"):
        shown_here = [output.text for output in texts if output.stream == name]
        assert sum(len(text.encode()) for text in shown_here) <= max_bytes
        sent = sum(len(text.encode("utf-8", "replace")) for of, text in pieces if of == name)
        too_much += sent > max_bytes
    assert len(notices) == too_much


@hypothesis.given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(["display_data", "execute_result", "update_display_data"]),
            strategies.sampled_from(["a", "b", "c", None]),
        )
    ),
    strategies.integers(1, 3),
)
def test_displays_never_exceed_their_budgets(sent, displays):
    reader = outputs.OutputReader(settings.Limits(), max_displays=displays)
    shown = [output for kind, name in sent for output in reader.read(display(kind, name))]
    results = [output for output in shown if isinstance(output, values.Result)]
    assert sum(not output.is_update for output in results) <= displays
    assert sum(output.is_update for output in results) <= 20 * displays
    assert len(shown) - len(results) == (reader.dropped_display_count > 0)
    assert len(results) + reader.dropped_display_count == len(sent)


@pytest.mark.parametrize(
    ("plain", "title", "shown"),
    [
        ("<Figure size 640x480 with 1 Axes>", "Sales\n by month", "Figure: Sales by month"),
        ("<Figure size 640x480 with 1 Axes>", "", "<Figure size 640x480 with 1 Axes>"),
        ("<Figure size 640x480 with 1 Axes>", 3, "<Figure size 640x480 with 1 Axes>"),
        ("a photograph", "Sales", "a photograph"),
    ],
)
def test_a_figure_is_called_as_its_title(plain, title, shown):
    encoded = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    bundle = {"image/png": encoded, "text/plain": plain, mime_bundles.TITLE_MIME: title}
    assert choose(bundle).plain == shown
