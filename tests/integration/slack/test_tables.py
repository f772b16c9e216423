"""What an execution showed, where Slack has a form of its own for it or none."""

import base64

from interpreter_bot import values
from tests.fakes import conversations as fake

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
HEAD = values.Table(
    columns=("", "a"),
    rows=(("0", "1"),),
    row_count=12_345,
    column_count=1,
    index_count=1,
    handle="t1",
)


def showing(*outputs):
    async def script(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "df")
        for output in outputs:
            turn.reply.output(0, output)
        turn.reply.finished(0, fake.finished_well())
        return

    return script


async def answered(slack, service):
    ts = slack.say("U1", "C1", "<@UBOT> show")
    await slack.until(lambda: service.ends)
    [answer] = await slack.until(
        lambda: slack.status("C1", ts) == "active" and slack.answers("C1", ts)[:1]
    )
    return ts, answer


async def test_all_of_a_table_is_a_button_away(slack, service, app):
    service.script = showing(HEAD)
    service.tables["t1"] = b",a\n0,1\n1,2\n"
    ts, answer = await answered(slack, service)
    assert "12,345 rows x 1 columns, the first 1 shown" in answer["blocks"][0]["text"]
    assert [block["type"] for block in answer["blocks"]][1:3] == ["table", "actions"]
    assert answer["blocks"][2]["elements"][-1]["text"]["text"] == "All as CSV"
    slack.click("U2", "C1", answer["ts"], "csv_1")
    [batch] = await slack.until(lambda: slack.world.batches)
    assert batch["thread_ts"] == ts
    assert [file["name"] for file in batch["files"]] == ["table-t1.csv"]
    assert slack.world.contents[batch["files"][0]["id"]] == b",a\n0,1\n1,2\n"


async def test_table_that_is_gone_is_said_to_who_asked(slack, service, app):
    service.script = showing(HEAD)
    _, answer = await answered(slack, service)
    slack.click("U1", "C1", answer["ts"], "csv_1")
    [told] = await slack.until(lambda: slack.world.responses)
    assert told["text"] == "That table is no longer there. Run its code again to get all of it."
    assert told["unfurl_links"] is False


async def test_table_of_another_channel_cannot_be_had_nor_by_a_guest(slack, service, app):
    service.script = showing(HEAD)
    service.tables["t1"] = b"x"
    _, answer = await answered(slack, service)
    button = answer["blocks"][2]["elements"][-1]
    slack.click("UGUEST", "C1", answer["ts"], "csv_1")
    await slack.until(lambda: slack.world.responses)
    button["value"] = "T1/C2/1.2/t1"
    slack.click("U1", "C1", answer["ts"], "csv_1")
    await slack.until(lambda: len(slack.world.responses) == 2)
    said = [told["text"] for told in slack.world.responses]
    assert "Guests" in said[0]
    assert said[1] == "There is no such conversation here."
    assert slack.world.batches == []


async def test_table_that_is_all_there_has_no_button(slack, service, app):
    whole = values.Table(columns=("a",), rows=(("1",),), row_count=1, column_count=1)
    service.script = showing(whole)
    _, answer = await answered(slack, service)
    assert [block["type"] for block in answer["blocks"]][1:3] == ["table", "actions"]
    assert "as CSV" not in str(answer["blocks"])
    assert "1 rows" not in answer["blocks"][0]["text"]


async def test_pages_formulas_drawings_and_sounds_are_pictures_and_files(slack, service, app):
    sound = base64.b64encode(b"RIFF" + bytes(60)).decode()
    service.script = showing(
        values.Html(
            html=b"<div id=plot></div><script>draw()</script>",
            title="Sales <!channel>",
            preview=PNG,
        ),
        values.Latex(latex="$x^2$", plain="x squared", preview=PNG),
        values.Image(mime="image/svg+xml", data=b"<svg/>", preview=PNG, plain="a drawing"),
        values.Html(html=f'<audio controls src="data:audio/wav;base64,{sound}"></audio>'.encode()),
    )
    ts, _ = await answered(slack, service)
    [batch] = await slack.until(lambda: slack.world.batches)
    names = [file["name"] for file in batch["files"]]
    assert names == ["sales-channel.html", "drawing-1.svg", "sound-1.wav"]
    blocks = [block for message in slack.answers("C1", ts) for block in message.get("blocks", ())]
    shown = [block for block in blocks if block["type"] == "image"]
    titles = [block["title"]["text"] for block in shown]
    assert titles == ["sales-channel.png", "formula-1.png", "drawing-1.png"]
    alts = [block["alt_text"] for block in shown]
    assert alts == ["Preview: Sales _!channel_", "x squared", "a drawing"]
