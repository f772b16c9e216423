"""Queries of an answer, shown to whoever asks for them."""

from interpreter_bot import code_activity
from tests.fakes import conversations as fake


async def asking(turn):
    turn.reply.step(1)
    await turn.reply.code(0, "df")
    turn.reply.finished(0, fake.finished_well())
    turn.queries = (
        code_activity.ShownQuery("sales", "select '``` <!channel>'", rows=3, seconds=0.5),
    )
    return turn.done("Three.")


async def answered(slack, service):
    service.script = asking
    ts = slack.say("U1", "C1", "<@UBOT> how many?")
    await slack.until(lambda: service.ends)
    [answer] = await slack.until(
        lambda: slack.status("C1", ts) == "active" and slack.answers("C1", ts)[:1]
    )
    return answer


def button(answer):
    [row] = [block for block in answer["blocks"] if block["type"] == "actions"]
    [found] = [element for element in row["elements"] if element["action_id"] == "code"]
    return found


async def test_queries_are_a_button_away_for_who_presses_it(slack, service, app):
    answer = await answered(slack, service)
    assert button(answer)["text"]["text"] == "Show code"
    slack.click("U2", "C1", answer["ts"], "code")
    [told] = await slack.until(lambda: slack.world.ephemerals)
    assert told["blocks"][-1]["type"] == "rich_text", "of which Slack parses nothing"
    [code] = told["blocks"][-1]["elements"][0]["elements"]
    assert code["text"].startswith("-- sales: 3 rows in 0.5 s\nselect '``` <!channel>")
    assert "<!channel>" not in told["text"]


async def test_queries_of_another_channel_are_not_shown_nor_to_a_guest(slack, service, app):
    answer = await answered(slack, service)
    slack.click("UGUEST", "C1", answer["ts"], "code")
    await slack.until(lambda: slack.world.responses)
    pressed = button(answer)
    pressed["value"] = pressed["value"].replace("/C1/", "/C2/")
    slack.click("U1", "C1", answer["ts"], "code")
    await slack.until(lambda: len(slack.world.responses) == 2)
    said = [told["text"] for told in slack.world.responses]
    assert "Guests" in said[0]
    assert said[1] == "That answer is too old to show."
