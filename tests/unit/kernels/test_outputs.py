"""Outputs: the richest harmless form, within the budget of one execution."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter_bot import settings, values
from interpreter_bot.kernels import mime_bundles, outputs
from interpreter_bot.kernels.wire import jupyter_messages
from interpreter_bot.text import safe_text

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
TABLE = {"columns": ["i", "a"], "rows": [["0", "x"]], "row_count": 9, "column_count": 1}


def _message(msg_type: str, **content: object) -> jupyter_messages.Message:
    return jupyter_messages.Message("1", msg_type, dict(content))


def _read(message: jupyter_messages.Message, **limits: int) -> outputs.Outputs:
    return outputs.OutputReader(settings.Limits(**limits)).read(message)


def _shown(data: dict[str, object], **limits: int) -> values.Output:
    (output,) = _read(_message("display_data", data=data), **limits)
    return output


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"image/png": _encoded(PNG), "text/html": "<b>"}, values.Image),
        ({"image/png": _encoded(b"<svg>"), "text/html": "<b>"}, values.Html),
        ({"image/png": "%%%", "text/plain": "x"}, values.Result),
        ({"image/jpeg": _encoded(b"\xff\xd8\xff0")}, values.Image),
        ({"image/svg+xml": ["<svg>", "</svg>"]}, values.Image),
        (
            {mime_bundles.TABLE_MIME: TABLE | {"index_count": 1}, "text/html": "<table>"},
            values.Table,
        ),
        ({mime_bundles.TABLE_MIME: TABLE, "text/html": "<table>"}, values.Html),
        ({"text/latex": "$x$", "text/plain": "x"}, values.Latex),
        ({"application/json": {"a": 1}}, values.Json),
        ({"text/markdown": "*x*"}, values.Result),
        ({"text/plain": "x"}, values.Result),
        ({"unknown/kind": "x"}, values.Result),
        ({}, values.Result),
    ],
)
def test_the_richest_form_that_is_what_it_says_is_shown(data, kind):
    assert type(_shown(data)) is kind


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": "ab"},
        {"columns": ["i"]},
        {"rows": [["0"]]},
        {"rows": [[0, 1]]},
        {"rows": {}},
        {"row_count": True},
        {"row_count": -1},
        {"column_count": 1.5},
        {"index_count": "1"},
        {"columns": ["c"] * 101},
    ],
)
def test_a_table_that_is_none_falls_back(wrong):
    table = TABLE | {"index_count": 1} | wrong
    assert isinstance(_shown({mime_bundles.TABLE_MIME: table, "text/plain": "t"}), values.Result)


def test_markdown_is_said_in_its_own_words():
    assert _shown({"text/markdown": "*x*", "text/plain": "<Markdown>"}).plain == "*x*"


def test_printed_text_is_cut_once_on_a_character_and_says_so():
    reader = outputs.OutputReader(settings.Limits(output_bytes=5))
    first = reader.read(_message("stream", name="stdout", text="ab"))
    second = reader.read(_message("stream", name="stdout", text="éé"))
    third = reader.read(_message("stream", name="stdout", text="more"))
    other = reader.read(_message("stream", name="stderr", text="more"))
    assert first == (values.Text("stdout", "ab"),)
    assert second[0] == values.Text("stdout", "é")
    assert isinstance(second[1], values.Notice)
    assert third == ()
    assert other == (values.Text("stderr", "more"),)


def test_what_the_kernel_cut_is_marked_where_it_was():
    reader = outputs.OutputReader(settings.Limits())
    shown = reader.read(_message("stream", name="stdout", text="end", cut=1234))
    assert shown == (
        values.Notice("1,234 characters are left out here."),
        values.Text("stdout", "end"),
    )
    begun = outputs.OutputReader(settings.Limits()).read(
        _message("stream", name="stdout", text="", cut=-1)
    )
    assert begun == (
        values.Notice(
            "This is too much output to show all of it. Its end comes when the code ends."
        ),
    )
    for forged in (True, -5, "5", 10**30):
        read = reader.read(_message("stream", name="stdout", text="x", cut=forged))
        assert read == (values.Text("stdout", "x"),)


def test_displays_over_the_number_are_left_out_with_one_notice():
    reader = outputs.OutputReader(settings.Limits(), max_displays=2)
    shown = [reader.read(_message("display_data", data={"text/plain": "x"})) for _ in range(4)]
    kinds = [tuple(type(output) for output in outputs_) for outputs_ in shown]
    assert kinds == [(values.Result,), (values.Result,), (values.Notice,), ()]


def test_updates_have_a_budget_of_their_own_that_ends():
    reader = outputs.OutputReader(settings.Limits(), max_displays=1)
    content = {"data": {"text/plain": "x"}, "transient": {"display_id": "d"}}
    updates = [reader.read(_message("update_display_data", **content)) for _ in range(25)]
    assert all(update[0].is_update for update in updates[:20])
    assert isinstance(updates[20][0], values.Notice)
    assert updates[21:] == [()] * 4


def test_a_display_over_the_size_is_said_not_shown():
    assert isinstance(_shown({"text/html": "x" * (outputs.MAX_DISPLAY_BYTES + 1)}), values.Notice)


def test_an_error_is_compact_bounded_and_without_escapes():
    content = {
        "ename": "E\x1b[31m",
        "evalue": "v" * 9999,
        "traceback": ["\x1b[1ma", 3, "b" * 99999],
    }
    (error,) = _read(_message("error", **content))
    assert error.name == "E"
    assert len(error.message) == 2000
    assert error.traceback.startswith("a\nbbb")
    assert "characters left out" in error.traceback
    assert len(error.traceback) < 20_100


@pytest.mark.parametrize("msg_type", ["status", "comm_open", "execute_input", "", "unknown"])
def test_what_is_no_output_shows_nothing(msg_type):
    assert _read(_message(msg_type, data={"text/plain": "x"})) == ()


@given(
    st.sampled_from(["stream", "display_data", "error", "clear_output", "update_display_data"]),
    st.dictionaries(
        st.sampled_from(["name", "text", "data", "transient", "ename", "evalue", "traceback"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=6,
        ),
    ),
)
def test_no_content_breaks_the_reader(msg_type, content):
    for output in _read(_message(msg_type, **content)):
        output.plain.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://e\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\rb\tc\n", "a\rb\tc\n"),
        ("\x00\x08\x9bx\x7f", "x"),
        ("\ud800", "?"),
        ("\x1bc\x1b(Bx", "x"),
    ],
)
def test_escapes_and_controls_are_removed(text, shown):
    assert safe_text.clean(text) == shown


@given(
    st.lists(
        st.sampled_from(["a", "\x1b", "[", "31", "m", "]", "0;", "\x07", "\\", "\r", "\n", "(B"]),
        max_size=30,
    )
)
def test_cutting_a_stream_anywhere_shows_no_control(pieces):
    cleaner = safe_text.Cleaner()
    shown = "".join(cleaner.feed(piece) for piece in pieces)
    assert not any(character in shown for character in "\x1b\x07")


def test_an_escape_cut_in_two_leaves_nothing_behind():
    cleaner = safe_text.Cleaner()
    assert cleaner.feed("a\x1b[3") + cleaner.feed("1mb") == "ab"
    assert cleaner.feed("c\x1b]0;ti") + cleaner.feed("tle\x07d") == "cd"


def test_a_long_text_keeps_head_and_tail():
    text = safe_text.elide_middle("h" * 50 + "t" * 50, 20)
    assert text.startswith("h" * 10)
    assert text.endswith("t" * 10)
    assert "80 characters left out" in text
