import hashlib

from interpreter_bot import events, values
from interpreter_bot.platforms.web import live_turns
from interpreter_bot.wording import page_words

HEAD = {"request": "x", "files": [], "is_code": False, "started": 0.0}


def test_pictures_and_pages_are_kept_apart_and_named_by_their_hash():
    sent, kept = [], {}
    turn = live_turns.LiveTurn(
        "id", HEAD, send=lambda _, event: sent.append(event), keep_blob=kept.__setitem__
    )
    image = values.Image(mime="image/png", data=b"p", plain="Figure: x", display_id="d")
    for output in (image, values.Html(html=b"<b>x</b>")):
        turn.emit(events.OutputShown(0, output))
    digests = [hashlib.sha256(data).hexdigest() for data in (b"p", b"<b>x</b>")]
    assert kept == dict(zip(digests, (b"p", b"<b>x</b>"), strict=True))
    assert [event.output.sha256 for event in sent] == digests
    _, first, second = turn.describe()["events"]
    assert (first["type"], first["text"], first["display_id"]) == ("image", "Figure: x", "d")
    assert (second["type"], second["sha256"]) == ("html", digests[1])


def test_who_comes_late_is_told_that_output_is_left_out():
    turn = live_turns.LiveTurn("id", HEAD, send=lambda *_: None, keep_blob=lambda *_: None)
    for _ in range(5):
        turn.emit(events.OutputShown(0, values.Text("stdout", "x" * 1024 * 1024)))
    first, *rest = turn.describe()["events"]
    assert first == {"type": "announcement", "text": page_words.OUTPUT_LEFT_OUT}
    assert sum(len(event["text"]) for event in rest) <= 4 * 1024 * 1024
