"""What a conversation shows of its turns: places, notices, ends and questions."""

import asyncio
import datetime
import json
import zoneinfo

import pytest

from interpreter_bot import code_activity, errors, events, settings, values
from interpreter_bot.store import turns
from tests.fakes import conversations
from tests.integration.web import visits

LAST = "[...document.querySelectorAll('.turn')].at(-1)"
MIXED = "color-mix(in srgb, var(--ansi-%d), var(--ink))"


async def test_earlier_turns_come_above_what_is_being_read(serving_fake, browsing):
    async def echo(turn):
        return "\n\n".join([turn.request.text] * 20)

    async with serving_fake({"echo": echo}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "echo 1")
        await visits.wait_for_turns(page)
        (request,) = bot.requests
        for number in range(2, 81):
            await bot.add_turn(request.key, f"echo {number}", answer=f"echo {number}" * 20)
        await page.reload()
        await visits.wait_for_turns(page, 30)
        await page.value("document.getElementById('scroll').scrollTop = 0")
        await page.wait_for_frame()
        # What is far away has no text that is seen, and only about a height.
        turn = (
            "[...document.querySelectorAll('.turn')].find(e => e.textContent.includes('echo 51'))"
        )
        seen = "checkVisibility({contentVisibilityAuto: true})"
        await page.until(f"{turn}.querySelector('.answer').{seen}")
        await page.wait_for_frame()
        place = f"{turn}.getBoundingClientRect().top"
        before = await page.value(place)
        await page.click("#earlier button")
        await page.until("document.querySelectorAll('.turn').length === 80")
        await page.wait_for_frame()
        assert abs(await page.value(place) - before) < 60
        assert await page.value("document.activeElement.id") == "scroll"
        # Only what is near is painted, but for a printer.
        painted = f"[...document.querySelectorAll('.answer')].filter(e => e.{seen}).length"
        assert 0 < await page.value(painted) < 70
        await page.call("Emulation.setEmulatedMedia", media="print")
        await page.until(f"{painted} === 80")


async def test_only_the_latest_word_about_a_conversation_stands(serving_fake, browsing):
    async def hello(turn):
        return "Hello."

    async with serving_fake({"hello": hello}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "hello")
        await visits.wait_for_turns(page)
        key = bot.requests[0].key
        await bot.notify(key, "In 80 seconds its variables are let go.")
        await bot.notify(key, "The variables of this conversation are gone.")
        for _ in range(2):
            await page.until("document.querySelector('.between')")
            assert await page.text(".between") == "The variables of this conversation are gone."
            await page.reload()
            await visits.wait_for_turns(page)


async def test_one_stop_is_said_once(serving_fake, browsing):
    running = asyncio.Event()

    async def play(turn):
        await turn.reply.code(0, turn.request.text)
        running.set()
        trace = "Cell 1, line 1\nKeyboardInterrupt"
        try:
            await asyncio.sleep(60)
        finally:
            turn.reply.output(0, values.Error("KeyboardInterrupt", "", trace))
            turn.reply.finished(0, values.Finished(values.Ending.STOPPED, 1.5))

    async with serving_fake({"wait()": play}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/py wait()")
        await running.wait()
        await page.click("#stop")
        await visits.wait_for_turns(page)
        for _ in range(2):
            text = await page.text(".turn")
            assert text.lower().count("stopped") == 2, text  # "Stopped · 1.5 s", "Where it was …"
            assert "KeyboardInterrupt" not in text
            await page.click(".calm summary")
            assert "line 1" in await page.text(".calm")
            await page.reload()
            await visits.wait_for_turns(page)
            await page.until("document.querySelector('.calm')")


async def test_an_end_that_says_more_than_stopped_is_shown(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        drawn = await page.value(
            "(async () => { const {Turn} = await import('/turns.js');"
            " const turn = new Turn({id: 'x', request: 'go', files: [], is_code: false,"
            " events: [{type: 'begun'}, {type: 'over', status: 'stopped', text: '', seconds: 1,"
            " turn_id: 1, reason: 'The bot was restarted.'}]}, {announce() {}});"
            " return turn.element.textContent; })()"
        )
        assert "The bot was restarted." in drawn


async def test_code_that_waits_is_seen_and_can_be_withdrawn_calmly(serving_fake, browsing):
    gate = asyncio.Event()

    async def wait(turn):
        await gate.wait()

    script = {"wait": wait, "x": wait}
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "wait")
        await page.until("document.querySelector('.turn')")
        await visits.send_message(page, "/py x = 12345")
        await page.until(f"{LAST}.innerText.includes('Queued: 1 request ahead')")
        assert "x = 12345" in await page.text(".code-asked")
        await page.value(f"{LAST}.querySelector('.state button').click()")
        await page.until(f"{LAST}.innerText.includes('withdrawn')")
        assert "x = 12345" in await page.text(".code-asked")
        assert await page.value(f"{LAST}.querySelector('.bad, [role=alert]')") is None
        gate.set()
        await visits.wait_for_turns(page, 2)


@pytest.mark.gate
async def test_an_answer_given_in_another_tab_is_shown_but_no_secret(serving_fake, browsing):
    async def play(turn):
        await turn.reply.code(0, turn.request.text)
        for name, is_password in (("Name: ", False), ("Key: ", True)):
            await turn.reply.ask(0, values.InputRequested(name, is_password=is_password))
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))

    async with serving_fake({"input()": play}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/py input()")
        other = await browser.page()
        await other.go(await page.value("location.href"))
        await other.click(".question input[type=text]")
        await other.type("Ada")
        await other.press("Enter")
        await other.until("document.querySelector('.question input[type=password]')")
        await other.type("hunter2")
        await other.press("Enter")
        # A tab that is not seen draws nothing.
        await page.until(f"{visits.ENDED} === 1")
        assert await page.text(".answered") == "Name: Ada\nKey: "
        assert "hunter2" not in await page.value("document.body.innerText")


@pytest.mark.gate
async def test_a_conversation_goes_on_in_a_copy_and_takes_its_last_answer_back(
    serving_fake, browsing
):
    script = {"hello": conversations.echo, "more": conversations.echo}
    async with serving_fake(script) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "hello")
        await visits.wait_for_turns(page)
        source = await page.value("location.hash")
        await visits.send_message(page, "/fork")
        await page.until(f"location.hash !== '{source}' && document.querySelector('.turn')")
        await page.until("document.body.innerText.includes('a copy of another one')")
        await page.until("document.body.innerText.includes('echo: hello')")
        await visits.send_message(page, "more")
        await page.until("document.body.innerText.includes('echo: more')")
        await visits.send_message(page, "/undo")
        await page.until("!document.body.innerText.includes('echo: more')")
        await page.until("document.body.innerText.includes('echo: hello')")
        # It says what it did, also to screen readers, and the question can be written anew.
        for place in "turns", "spoken":
            words = f"document.getElementById('{place}').textContent"
            await page.until(f"{words}.includes('are back to before “more”')")
        assert await page.value("document.getElementById('message').value") == "more"
        await page.value("document.getElementById('message').value = ''")
        await visits.send_message(page, "/again")
        await page.until("document.body.innerText.includes('Nothing to rebuild')")
        asked = [request.key.thread for request in bot.requests]
        assert asked == [source.removeprefix("#"), (await page.value("location.hash"))[1:]]


async def test_a_question_is_asked_anew_in_a_branch_and_one_goes_from_one_to_the_other(
    serving_fake, browsing
):
    script = {name: conversations.echo for name in ("one", "two", "three")}
    async with serving_fake(script) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for number, text in enumerate(("one", "two"), 1):
            await visits.send_message(page, text)
            await visits.wait_for_turns(page, number)
        source = await page.value("location.hash")
        await page.click(".turn:last-child .asked > button")
        await page.until("document.activeElement.ariaLabel === 'Question'")
        await page.press("Escape")
        assert await page.value("document.querySelector('.edit-asked')") is None
        await page.click(".turn:last-child .asked > button")
        await page.until("document.activeElement.ariaLabel === 'Question'")
        await page.value("document.activeElement.select()")
        await page.type("three")
        await page.press("Enter")
        await page.until(f"location.hash !== '{source}' && document.querySelector('.versions')")
        # The question before, the notice with the way to the other branch, and the new question.
        await visits.wait_for_turns(page, 3)
        shown = await page.value("document.getElementById('turns').innerText")
        words = ["echo: one", "Another branch", "2 / 2", "echo: three"]
        assert [shown.find(one) > 0 for one in [*words, "echo: two"]] == [True] * 4 + [False]
        assert shown.index("2 / 2") < shown.index("echo: three")
        assert len({request.key for request in bot.requests}) == 2
        assert await page.value("document.querySelectorAll('#conversations li').length") == 1
        await page.reload()
        await visits.wait_for_turns(page, 3)
        await page.click(".versions a")
        await page.until(f"location.hash === '{source}'")
        await page.until("document.querySelector('.versions')?.innerText.includes('1 / 2')")
        assert "echo: two" in await page.value("document.getElementById('turns').innerText")
        # Asked anew as it was, and deleted with all its branches.
        await page.click(".turn:last-child .meta button:last-of-type")
        await page.until("document.querySelector('.versions')?.innerText.includes('3 / 3')")
        await visits.wait_for_turns(page, 3)
        assert [request.text for request in bot.requests][3:] == ["two"]
        await page.click("#conversations button")
        await page.click("#actions button:last-child")
        await page.click("dialog[open] [value=yes]")
        await page.until("!document.querySelector('#conversations li')")
        async with asyncio.timeout(30):
            for request in bot.requests:
                while await bot.queries.exists(request.key):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


async def test_what_was_lost_can_be_made_again_beside_the_variables(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.value(
            "import('/pane.js').then(pane => pane.show("
            "{panel: 'variables', rows: [['Saved', 'nothing']], variables: [], lost_cells: 2},"
            " {runAgain: () => document.title = 'ran'}))"
        )
        await page.until("document.getElementById('pane').innerText.includes('No variables yet')")
        assert "Rebuild lost variables: run 2 cells" in await page.text("#pane-body")
        await page.click("#pane-body .facts button")
        assert await page.value("document.title") == "ran"


async def test_a_schedule_has_the_time_zone_of_the_browser(serving_fake, browsing):
    async with serving_fake({}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
        await visits.send_message(page, "/schedule daily 9:00: hello")
        confirm = "[...document.querySelectorAll('button')].find(e => e.innerText === 'Confirm')"
        await page.until(confirm)
        buttons = "[...document.querySelectorAll('.approval button')].map(e => e.innerText)"
        assert await page.value(buttons) == ["Confirm", "Change", "Cancel"]
        await page.value(f"{confirm}.click()")
        await visits.wait_for_turns(page)
        await bot.wait_until_idle()
        (schedule,) = await bot.services.database.schedules.list_all(limit=9)
        assert schedule.zone == "Asia/Tokyo"
        assert await page.text(".bubble") == "/schedule daily 9:00 Asia/Tokyo: hello"
        assert not await page.value("document.querySelector('.code-asked')")


HOSTILE_TEXT = (
    "\u202egnp\u2066 <img src=x onerror=window.hacked=1> <b>bold</b> [Log in](javascript:alert(1)) "
    "\x1b[2J `a` ```b``` @here"
)


async def test_hostile_words_of_schedules_are_shown_as_text(serving_fake, browsing):
    async def fail(turn):
        turn.reply.step(1)
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=HOSTILE_TEXT)

    async def fire(bot):
        (schedule,) = await bot.services.database.schedules.list_all(limit=9)
        bot.schedules.now = lambda: schedule.due
        await bot.schedules.fire()
        await bot.schedules.close()

    script = {HOSTILE_TEXT.partition(" ")[0]: fail}
    async with serving_fake(script) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        words = f"/schedule daily 9:00 UTC: {HOSTILE_TEXT}"
        await page.value(f"{visits.FIELD}.focus()")
        await page.value(f"document.execCommand('insertText', false, {json.dumps(words)})")
        await page.press("Enter")
        await page.until("document.querySelector('.approval button')")
        card = await page.text(".approval")
        await page.click(".approval button")
        await visits.wait_for_turns(page)
        await bot.wait_until_idle()
        await fire(bot)
        await visits.wait_for_turns(page, 2)
        lists = []
        for command, words in (("/schedules", "daily 9:00: "), ("/schedules history 1", "failed:")):
            await visits.send_message(page, command)
            row = f"document.querySelector('#panel-body').innerText.includes('{words}')"
            await page.until(row)
            lists.append(await page.text("#panel-body"))
            await page.press("Escape")
        # Where the words stand beside the bot's own, they cannot reorder them.
        assert not set("".join((card, *lists, await page.text("#conversations")))) & set(
            "\u202e\u2066\x1b"
        )
        assert await page.value("document.querySelectorAll('img[src=x], .bubble b').length") == 0
        assert await page.value("document.querySelectorAll('a[href^=javascript]').length") == 0
        assert await page.value("window.hacked ?? 0") == 0


async def test_the_pane_says_in_the_readers_time_zone_when_variables_were_saved(
    serving_kernels, browsing
):
    snapshots = settings.Snapshots()
    async with serving_kernels(snapshots=snapshots) as (service, address), browsing() as browser:
        page = await browser.page()
        await page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        await page.value("document.getElementById('message').focus()")
        await page.type("price = 41")
        await page.press("Enter", modifiers=2)
        await visits.wait_for_turns(page)
        key = values.SessionKey("web", thread=await page.value("location.hash.slice(1)"))
        await service.services.hosts.end_session(values.format_key(key), "It was let go.")
        saved = (await service.queries.variables(key)).saved
        await visits.choose(page, "python-state", "Variables")
        await page.until("document.querySelector('#pane .rows')")
        moment = datetime.datetime.fromtimestamp(saved.saved_at, zoneinfo.ZoneInfo("Asia/Kolkata"))
        shown = await page.text("#pane .rows")
        assert f"1 variable on {moment:%B %-d, %Y at %-I:%M}" in shown
        assert "UTC" not in shown


async def test_a_variable_leads_to_the_cells_that_made_and_read_it(serving_kernels, browsing):
    async with serving_kernels() as (_, address), browsing() as browser:
        page = await browser.page()
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        for count, code in enumerate(("price = 41", "price + 1"), 1):
            await page.value("document.getElementById('message').focus()")
            await page.type(code)
            await page.press("Enter", modifiers=2)
            await visits.wait_for_turns(page, count)
        await visits.choose(page, "python-state", "Variables")
        await page.until("document.querySelector('.uses')")
        await page.value("document.querySelector('.uses').open = true")
        said = "[...document.querySelectorAll('.uses button')].map(e => e.textContent)"
        assert await page.value(said) == ["Read by price + 1", "Made by price = 41"]
        await page.value("document.querySelectorAll('.uses button')[1].click()")
        assert "price = 41" in await page.value("document.activeElement.innerText")


async def test_code_is_run_again_edited_and_hidden(serving_fake, browsing):
    async def play(turn):
        await turn.reply.code(0, turn.request.text)
        finished = values.Finished(values.Ending.ERROR, 0.1)
        turn.reply.finished(0, finished)
        return ""

    async def explain(turn):
        return "Here: \n```python\nbroken()\n```"

    async with serving_fake({"broken()": play, "Why": explain}) as (bot, client), browsing() as b:
        page = await visits.open_page(b, client)
        await visits.send_message(page, "/py broken()")
        await visits.wait_for_turns(page)
        await page.click(".to-ask")
        await visits.wait_for_turns(page, 2)
        await page.click(".turn:last-child .to-run")
        await visits.wait_for_turns(page, 3)
        asked = [(request.text, request.is_code) for request in bot.requests]
        assert [asked[0], asked[2]] == [("broken()", True)] * 2
        await page.click(".to-edit")
        assert await page.value("document.getElementById('message').value") == "broken()"
        # The field, or the editor that takes its place once it is fetched.
        assert await page.value("document.activeElement.id") in ("message", "code")
        seen = "document.querySelector('.cell pre').checkVisibility()"
        assert await page.value(seen)
        for is_seen in (False, True):
            await visits.choose(page, "more", "Show code")
            assert await page.value(seen) is is_seen


@pytest.mark.gate
async def test_colours_of_printed_text_are_shown_and_nothing_else_of_escapes(
    serving_fake, browsing
):
    printed = (
        "\x1b[31mred\x1b[0m plain \x1b[1;38;5;208mbold orange\x1b[22;39m"
        " \x1b[48;2;1;2;3mback\x1b[49m <b onclick=x>&amp;\x1b[94m\n"
        "still blue\x1b]8;;http://x\x07\x1b[2J\x1b[m off\n"
        "\x1b[32m 10%\r\x1b[33m 99%"
    )
    many = "".join(f"\x1b[3{number % 8}m{number}" for number in range(40_000)) + "\n"
    script = visits.make_script(values.Text("stdout", printed), values.Text("stderr", many))
    runs = (
        "[...document.querySelectorAll('.printed.stdout span:not(:has(span))')].map(e =>"
        " [e.textContent, e.className, e.style.color || e.style.background])"
    )
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        for _ in range(2):
            assert await page.value(runs) == [
                ["red", "", "var(--ansi-1)"],
                ["bold orange", "ansi-bold", "rgb(255, 135, 0)"],
                ["back", "", "white"],
                ["still blue", "", "var(--ansi-12)"],
                [" 99%", "", "var(--ansi-3)"],
            ]
            text = await page.value("document.querySelector('.printed.stdout').textContent")
            assert text == ("red plain bold orange back <b onclick=x>&amp;\nstill blue off\n 99%")
            assert await page.value("document.querySelectorAll('.printed :is(b, a)').length") == 0
            # A line of very many colours, which would keep a browser busy, is drawn without.
            assert await page.value("document.querySelectorAll('.stderr span').length") == 1
            await page.reload()
            await visits.wait_for_turns(page)


async def test_black_and_inverse_text_can_be_read_on_coloured_grounds(serving_fake, browsing):
    printed = (
        "\x1b[30;43mblack\x1b[0m \x1b[90;107mgrey\x1b[0m \x1b[30;48;5;226mliteral\x1b[0m"
        " \x1b[48;5;226mbright\x1b[0m \x1b[48;2;90;0;0mdeep\x1b[0m"
        " \x1b[48;5mcut\x1b[0m \x1b[48;2;1mshort\x1b[0m"
        " \x1b[7;33mturned\x1b[0m \x1b[7;44mground\x1b[0m \x1b[7mplain\x1b[0m"
    )
    colours = (
        "[...document.querySelectorAll('.printed.stdout span:not(:has(span))')].map(e =>"
        " [e.textContent, e.style.color, e.style.background.replace(/ 16%.*/, '')])"
    )
    async with (
        serving_fake(visits.make_script(values.Text("stdout", printed))) as (_, client),
        browsing() as browser,
    ):
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        assert await page.value(colours) == [
            ["black", MIXED % 0, "color-mix(in srgb, var(--ansi-3)"],
            ["grey", MIXED % 8, "color-mix(in srgb, var(--ansi-15)"],
            ["literal", "black", "rgb(255, 255, 0)"],
            ["bright", "black", "rgb(255, 255, 0)"],
            ["deep", "white", "rgb(90, 0, 0)"],
            ["cut", "", ""],
            ["short", "", ""],
            [
                "turned",
                "color-mix(in srgb, var(--ink), var(--ink))",
                "color-mix(in srgb, var(--ansi-3)",
            ],
            ["ground", "", ""],
            ["plain", "", ""],
        ]


@pytest.mark.gate
async def test_queries_stand_folded_below_the_code_also_after_a_reload(serving_fake, browsing):
    statement = "select region, sum(units)\nfrom orders -- <img src=x onerror=alert(1)>"

    async def play(turn):
        turn.reply.step(1)
        await turn.run(0, "df = connections['sales'].query(sql)", "3 rows\n")
        turn.queries = (
            code_activity.ShownQuery("sales", statement, rows=3, seconds=0.5),
            code_activity.ShownQuery("sales", "drop table orders", reason="It only reads."),
        )
        turn.reply.step(2)
        turn.reply.text("Three regions.")
        return "Three regions."

    async with serving_fake({"ask": play}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "ask")
        for _ in range(2):
            await visits.wait_for_turns(page)
            await page.until("document.querySelector('.cell + .queries')")
            assert await page.text(".cell + .queries summary") == "2 queries"
            assert not await page.value("document.querySelector('.queries').open")
            await page.click(".queries summary")
            shown = await page.text(".queries ol")
            assert "sales: 3 rows in 0.5 s" in shown
            assert statement in shown
            assert "sales: It only reads." in shown
            assert await page.value("document.querySelectorAll('.queries img').length") == 0
            await page.reload()


async def _drawn(turn):
    printed = "".join(f"line {number}\n" for number in range(300))
    error = values.Error("ValueError", "no", "Cell 1, line 1\n    raise\nValueError: no\n")
    await turn.run(0, "draw()", values.Text("stdout", printed), error)
    return "Here it is."


async def test_an_answer_is_short_and_all_of_it_can_be_had(serving_fake, browsing):
    async with serving_fake({"draw": _drawn}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "draw")
        await visits.wait_for_turns(page)
        for _ in range(2):
            await page.click(".work summary")
            # The end of what was printed is in sight, and how much there is of it.
            box = "document.querySelector('.printed')"
            await page.until(f"{box}.scrollTop + {box}.clientHeight >= {box}.scrollHeight - 8")
            button = "document.querySelector('.printed-box button')"
            await page.until(f"{button}.innerText.includes('Show all 300 lines')")
            await page.click(".printed-box button")
            await page.until(f"{box}.clientHeight === {box}.scrollHeight")
            # An error is named once.
            assert (await page.text(".output.error")).count("ValueError: no") == 1
            await page.reload()
            await visits.wait_for_turns(page)


async def test_an_error_is_named_once_and_one_long_line_is_no_count_of_lines(
    serving_fake, browsing
):
    trace = "Cell 1, line 1\n    get()\nrequests.exceptions.ConnectionError: no"
    outputs = ("x" * 9000, values.Error("ConnectionError", "no", trace))
    script = {"show": lambda turn: turn.run(0, "get()", *outputs)}
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/py show")
        await visits.wait_for_turns(page)
        assert await page.text(".output.error pre") == "Cell 1, line 1\n    get()"
        assert await page.text(".printed-box button") == "… Show all of it"


async def test_all_of_an_errors_message_can_be_read(serving_fake, browsing):
    lines = "3 validation errors\nname\n  Field required"
    long_text = "x" * 600 + " the end"
    errors = [
        values.Error("ValueError", message, f"Cell 1, line 1\n    check()\nValueError: {message}")
        for message in (lines, long_text)
    ]
    script = {"show": lambda turn: turn.run(0, "check()", *errors)}
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/py show")
        await visits.wait_for_turns(page)
        headings = "[...document.querySelectorAll('.output.error summary')].map(e => e.innerText)"
        first_heading, second_heading = await page.value(headings)
        assert first_heading == "ValueError: 3 validation errors"
        assert len(second_heading) == 500
        first, second = [await page.text(f".output:nth-child({n}) pre") for n in (1, 2)]
        assert first == f"Cell 1, line 1\n    check()\nValueError: {lines}"
        assert second.endswith(" the end")


LOAD_TWICE = """(async () => {
  const { Conversation } = await import("/conversation.js");
  const nothing = () => {};
  const conversation = new Conversation({
    onChange: nothing, announce: nothing, isWriting: nothing, getMaxSeconds: nothing,
  });
  const heading = { id: "past-1", turn_id: 1, request: "wait", files: [] };
  const load = (end) => conversation.load({
    past: [{ ...heading, events: [{ type: "over", status: "done", ...end }] }],
    live: [], notices: [], alternatives: [], has_earlier_turns: false,
  }, new Set());
  load({ text: "Half", reason: "The bot is restarting.", goes_on: true });
  load({ text: "All of it" });
  return document.getElementById("turns").textContent;
})()"""


async def test_a_turn_that_went_on_meanwhile_is_drawn_anew(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        text = await page.value(LOAD_TWICE)
        assert "All of it" in text
        assert "Half" not in text
        assert "restarting" not in text


SEEN = """[...document.querySelectorAll('.turn:first-child .answer :is(summary, pre, p, img, td)')]
  .filter((e) => e.checkVisibility()).map((e) => e.tagName === 'IMG' ? 'picture' : e.innerText)"""
ERROR = values.Error("KeyError", "'rows'", "Cell 1, line 1\nKeyError: 'rows'")
PICTURE = values.Image(mime="image/png", data=visits.png(600, 900), plain="a plot")
TABLE = values.Table(columns=("n",), rows=(("7",),), row_count=1, column_count=1)


@pytest.mark.gate
async def test_an_answer_begins_with_its_words_and_how_it_came_about_folds_away(
    serving_fake, browsing
):
    gate = asyncio.Event()

    async def work(turn):
        turn.reply.step(1)
        turn.reply.text("I look first.")
        await turn.run(0, "rows", ERROR, ending=values.Ending.ERROR)
        turn.reply.step(2)
        await turn.run(1, "print(1)", "printed")
        turn.reply.step(3)
        await turn.run(2, "plot()", "drawing", PICTURE, TABLE)
        await gate.wait()
        turn.reply.step(4)
        turn.reply.text("It is **seven**.")
        return "It is **seven**."

    live = ["I look first.", "rows", "KeyError: 'rows'", "Cell 1, line 1", "print(1)", "printed"]
    drawn = ["plot()", "drawing", "picture", "7"]
    folded = ["It is seven.", "Ran 3 cells, 1 failed · 0.75 s", "picture", "7"]
    script = {"work": work, "hello": conversations.echo}
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client, height=700)
        await visits.send_message(page, "work")
        await page.until("document.querySelector('.output img')?.naturalWidth === 600")
        # What draws the table comes by itself.
        await page.until(f"({SEEN}).length === {len([*live, *drawn])}")
        assert await page.value(SEEN) == [*live, *drawn]
        gate.set()
        await visits.wait_for_turns(page)
        assert await page.value(SEEN) == folded
        # The picture alone is higher than the window, and yet the words are seen.
        words = "document.querySelector('.answer > .words').getBoundingClientRect()"
        pane = "document.getElementById('scroll').getBoundingClientRect()"
        await page.until(f"Math.abs({words}.top - {pane}.top - 16) <= 1")
        assert await page.value("document.getElementById('latest').hidden")
        await page.value("document.querySelector('.work summary').focus()")
        await page.press("Enter")
        assert await page.value(SEEN) == [*folded[:2], *live, *drawn]
        # It stays so while the page is open.
        await visits.send_message(page, "hello")
        await visits.wait_for_turns(page, 2)
        assert await page.value(SEEN) == [*folded[:2], *live, *drawn]
        await page.reload()
        await visits.wait_for_turns(page, 2)
        await page.until(f"({SEEN}).length === {len(folded)}")
        assert (await page.value(SEEN))[0] == folded[0]


async def test_what_failed_last_stays_in_sight_as_does_code_of_people(serving_fake, browsing):
    async def fail(turn):
        await turn.run(0, "rows", "printed", ERROR, ending=values.Ending.ERROR)
        return "" if turn.request.is_code else "There are none."

    async with serving_fake({"fail": fail}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "fail")
        await visits.wait_for_turns(page)
        error = ["KeyError: 'rows'", "Cell 1, line 1"]
        assert await page.value(SEEN) == [
            "There are none.",
            "Ran 1 cell, 1 failed · 0.25 s",
            *error,
        ]
        await page.click("#new")
        await visits.send_message(page, "/py fail")
        await visits.wait_for_turns(page)
        assert await page.value(SEEN) == ["rows", "printed", *error]


async def test_words_between_cells_lead_to_files_as_the_last_words_do(serving_fake, browsing):
    async def work(turn):
        turn.reply.step(1)
        turn.reply.text("I save [the totals](sandbox:/mnt/data/totals (1).csv) first.")
        await turn.run(0, "save()")
        turn.reply.step(2)
        (turn.directory / "totals (1).csv").write_bytes(b"1,2\n")
        turn.make(0, "totals (1).csv", b"1,2\n")
        return "Done."

    async with serving_fake({"work": work}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "work")
        await visits.wait_for_turns(page)
        await page.click(".work summary")
        text = await page.text(".work ~ .words")
        assert text == "I save the totals (totals (1).csv) first."
        await page.click(".work ~ .words a.file-name")
        assert (await browser.wait_for_download()).name == "totals (1).csv"


async def test_an_answer_leads_to_files_that_were_there_before(serving_fake, browsing):
    async def save(turn):
        (turn.directory / "totals.csv").write_bytes(b"1,2\n")
        turn.make(0, "totals.csv", b"1,2\n")
        return "Done."

    async def remember(turn):
        return "They are in [a file](sandbox:/mnt/data/totals.csv), not in `gone.csv`."

    script = {"save": save, "remember": remember}
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "save")
        await visits.wait_for_turns(page)
        await visits.send_message(page, "remember")
        await visits.wait_for_turns(page, 2)
        await page.reload()
        await visits.wait_for_turns(page, 2)
        assert await page.text(".words a.file-name") == "totals.csv"
        await page.click(".words a.file-name")
        assert (await browser.wait_for_download()).name == "totals.csv"


async def test_nothing_folds_away_under_the_eyes_of_who_reads_it(serving_fake, browsing):
    gate = asyncio.Event()

    async def work(turn):
        await turn.run(0, "count()", "\n".join(map(str, range(30))), PICTURE)
        await gate.wait()
        return "Thirty."

    async with serving_fake({"work": work}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client, height=600)
        await visits.send_message(page, "work")
        await page.until("document.querySelector('.output img')?.naturalWidth === 600")
        await page.until("document.getElementById('scroll').scrollTop > 0")
        await page.wait_for_frame()
        await page.value("document.getElementById('scroll').scrollTop = 0")
        await page.until("!document.getElementById('latest').hidden")
        gate.set()
        await visits.wait_for_turns(page)
        assert await page.value("document.querySelector('.work').open")
        assert await page.value("document.querySelector('.printed').checkVisibility()")


async def test_who_waits_sees_for_how_long_and_how_long_it_may_take(serving_fake, browsing):
    gate = asyncio.Event()

    async def wait(turn):
        await turn.reply.code(0, "wait()")
        await gate.wait()
        turn.reply.finished(0, conversations.finished_well())
        return "Done."

    async with serving_fake({"wait": wait}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "wait")
        await page.until(f"/Running… [34] s of at most \\d+ min/.test({LAST}.innerText)")
        # The model may give code more time, of which the page is not told.
        await page.value("{ const now = Date.now; Date.now = () => now() + 1_000_000; }")
        await page.until(f"/Running… 16 min \\d+ s/.test({LAST}.innerText)")
        assert "of at most" not in await page.value(f"{LAST}.innerText")
        gate.set()
        await visits.wait_for_turns(page)


async def test_a_request_whose_end_could_not_be_recorded_yet_is_shown(
    serving_fake, browsing, monkeypatch
):
    async def fail(*_, **__):
        raise errors.StoreError

    monkeypatch.setattr(turns.Turns, "finish", fail)
    async with serving_fake({"good": conversations.echo}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "good morning")
        await visits.wait_for_turns(page)
        await page.reload()
        await page.until("document.querySelector('.turn')")
        assert "good morning" in await page.text(".turn")
        monkeypatch.undo()


async def test_a_job_is_a_turn_of_its_own_beside_which_others_are_answered(serving_fake, browsing):
    async def begin(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "work()")
        turn.reply.finished(0, values.Finished(values.Ending.BACKGROUND, 60.0))
        return "It runs."

    async def work(turn):
        turn.reply.emit(events.OutputShown(0, values.Text("stdout", "step 1\n")))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            turn.reply.emit(events.CodeFinished(0, values.Finished(values.Ending.STOPPED, 61.0)))
            raise

    async def hello(turn):
        return "Hello."

    script = {"begin": begin, "work()": work, "hello": hello}
    async with serving_fake(script) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "begin")
        await visits.wait_for_turns(page)
        assert await page.value("document.querySelectorAll('.cell.failed').length") == 0
        assert await page.text(".work summary") == "Code in the background"
        request = bot.requests[0]
        about = {"person": request.person.id, "request_id": "1234567890123456", "is_job": True}
        await bot.go_on(request.key, "work()", **about)
        await page.until(f"{LAST}.textContent.includes('step 1')")
        await visits.send_message(page, "hello")
        await page.until("document.querySelector('#turns').textContent.includes('Hello.')")
        assert await page.value("document.getElementById('stop').hidden") is False
        await page.click("#stop")
        await page.until("document.getElementById('stop').hidden")
        await page.until("document.querySelector('#turns').textContent.includes('Stopped')")
        assert "step 1" in await page.text("#turns")
