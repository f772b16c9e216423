"""What a person meets, in a real browser, with scripted conversations behind the page."""

import asyncio
import decimal
import json
import re
import select
import shutil
import socket
import time

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.web import sandboxed_displays
from tests.integration.web import visits

HOSTILE = (
    '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>"
)


@pytest.mark.gate
async def test_first_screen_greets_and_warns(serving_fake, browsing):
    opening = serving_fake(notice="A demo model. Run `setup`.", sandbox_level="none")
    async with opening as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert await page.value("location.search + location.pathname") == "/"
        assert client.address.query["token"] not in await page.value("location.href")
        assert await page.value("document.referrer") == ""
        assert await page.text(".model-notice") == "A demo model. Run setup."
        assert await page.value("document.querySelectorAll('.example').length") == 3
        assert "without a sandbox" in await page.text("#walls")
        await page.click(".example")
        assert "500 sales" in await page.value("document.getElementById('message').value")
        # Nothing comes from elsewhere.
        assert all(one.startswith(client.origin) for one in page.requests)


@pytest.mark.parametrize(("level", "is_told"), [("full", False), ("container", True)])
async def test_first_screen_says_what_an_ordinary_container_does_not_give(
    serving_fake, browsing, level, is_told
):
    async with serving_fake(sandbox_level=level) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert ("Sandbox level: container" in await page.text("#welcome")) is is_told
        assert await page.value("document.getElementById('walls').hidden")


async def test_a_sign_of_life_comes_at_once(serving_fake, browsing):
    async def slow(turn):
        await asyncio.sleep(60)

    async with serving_fake({"slow": slow}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        milliseconds = []
        for number in range(1, 11):
            await page.value("document.getElementById('message').focus()")
            await page.type("slow one")
            milliseconds.append(
                await page.value(
                    "new Promise(done => { const start = performance.now();"
                    " const seen = new MutationObserver(() => requestAnimationFrame(() =>"
                    " done(performance.now() - start)));"
                    " seen.observe(document.getElementById('turns'), {childList: true});"
                    " document.getElementById('composer').requestSubmit(); })"
                )
            )
            state = "document.querySelector('.turn[aria-busy] .state')"
            await page.until(f"{state}?.innerText.includes('Thinking')")
            for _ in range(2):
                await page.press("Escape")
            await visits.wait_for_turns(page, number)
            if milliseconds[-1] <= 50:
                break
        # The quickest, because the machine does other things too.
        assert min(milliseconds) <= 50, milliseconds
        assert "Stopped" in await page.text(".turn")


@pytest.mark.gate
async def test_outputs_are_shown_in_order(serving_fake, browsing):
    table = values.Table(
        columns=("", "n"), rows=(("a", "1"),), row_count=1000, column_count=1, index_count=1
    )
    outputs = (
        values.Text("stdout", "one\n"),
        values.Image(mime="image/png", data=visits.png(), plain="a plot"),
        values.Text("stderr", "two\n"),
        table,
        values.Error("ValueError", "no", "Traceback:\n  line\nValueError: no"),
        values.Json(json='{"a": 1}'),
        values.Notice("Output was cut."),
    )
    script = visits.make_script(
        *outputs, text="See `made.csv`.", artifacts=[("made.csv", b"1,2\n")]
    )
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show me")
        await visits.wait_for_turns(page)
        await page.until("document.querySelector('.output img').naturalWidth === 3")
        classes = "[...document.querySelector('.outputs').children].map(e => e.className)"
        expected = [
            *("printed-box", "output image", "printed-box", "output table"),
            *("output error", "output json", "output notice"),
        ]
        await page.until("document.querySelector('.output.table td')")
        assert await page.value(classes) == expected
        assert "1,000 rows \u00d7 1 column, the first 1 row shown" in await page.text(
            ".output.table"
        )
        assert await page.value("document.querySelector('.words a.file-name').innerText")
        await page.click(".file a[download]")
        assert (await browser.wait_for_download()).read_bytes() == b"1,2\n"
        # The store's seconds include that it was told of the end.
        seconds = re.compile(r"[\d.]+ s(?=\nCopy)")
        before = seconds.sub("", await page.text("#turns"))
        await page.reload()
        await visits.wait_for_turns(page)
        await page.until("document.querySelector('.output img')?.naturalWidth === 3")
        # What draws tables is fetched with the first one.
        await page.until("document.querySelector('.output.table td')")
        assert seconds.sub("", await page.text("#turns")) == before


async def test_all_of_a_table_is_downloaded_when_asked_for(serving_fake, browsing):
    head = values.Table(columns=("a",), rows=(("1",),), row_count=9, column_count=1, handle="t7")
    whole = values.Table(columns=("a",), rows=(("1",),), row_count=1, column_count=1)
    async with (
        serving_fake(visits.make_script(head, whole)) as (bot, client),
        browsing() as browser,
    ):
        bot.tables["t7"] = b"all,of\nit,1\n"
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        await page.until("document.getElementById('title').textContent === 'show'")
        assert (await page.text("#turns")).count("All as CSV") == 1
        await page.click(".output.table .output-tools .small:nth-last-child(2)")
        file = await browser.wait_for_download()
        assert (file.name, file.read_text()) == ("show table.csv", "all,of\nit,1\n")


async def test_progress_is_one_line_and_displays_are_redrawn(serving_fake, browsing):
    async def play(turn):
        turn.reply.step(1)
        await turn.reply.code(0, "work()")
        for percent in range(101):
            turn.reply.output(0, values.Text("stderr", f"\r{percent:3d}% \x1b[31mdone\x1b[0m"))
        turn.reply.output(0, values.Text("stderr", "\nabc\b\bX\n"))
        turn.reply.output(0, values.Result(plain="first", display_id="d"))
        turn.reply.output(0, values.Result(plain="second", display_id="d", is_update=True))
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
        turn.reply.step(2)
        await turn.reply.code(1, "animate()")
        for frame in range(3):
            turn.reply.output(1, values.Clear(wait=True))
            turn.reply.output(1, values.Text("stdout", f"frame {frame}\n"))
        turn.reply.output(1, values.Clear(wait=True))
        turn.reply.finished(1, values.Finished(values.Ending.OK, 0.1))

    async with serving_fake({"go": play}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "go")
        await visits.wait_for_turns(page)
        await page.until("document.querySelector('.stderr').textContent")
        assert await page.text(".stderr") == "100% done\naXc\n"
        assert await page.text(".output.result") == "second"
        assert await page.text(".stdout") == "frame 2\n"


@pytest.mark.gate
async def test_no_text_of_anybodys_becomes_html(serving_fake, browsing_as_people):
    name = HOSTILE.replace("/", "") + "\u202egpj"
    outputs = (
        values.Text("stdout", HOSTILE),
        values.Table(columns=(HOSTILE,), rows=((HOSTILE,),), row_count=1, column_count=1),
        values.Error(HOSTILE, HOSTILE, HOSTILE),
        values.Latex(latex=HOSTILE),
        values.Json(json=HOSTILE),
        values.Result(plain=HOSTILE),
        values.Notice(HOSTILE),
        values.Image(mime="image/png", data=visits.png(), plain=HOSTILE),
        values.Html(html=f"<p>{HOSTILE}</p>".encode(), plain=HOSTILE),
    )
    script = visits.make_script(*outputs, text=f"{HOSTILE} [x](javascript:window.hacked=1)")

    async def named(turn):
        turn.reply.announcement(0, HOSTILE)
        turn.reply.artifact(0, values.Artifact(name, 5, "0" * 64))
        turn.reply.artifact(0, values.Artifact("長" * 300 + ".png", 5, "0" * 64))
        await turn.reply.code(0, HOSTILE)
        await turn.reply.ask(0, values.InputRequested(HOSTILE, is_password=False))

    script["named"] = named
    async with (
        serving_fake(script, models=(HOSTILE,)) as (bot, client),
        browsing_as_people() as browser,
    ):
        page = await visits.open_page(browser, client)
        # The pictures of files that are none; the page that runs behind walls may not load its own.
        page.expected = ["404", "400", "Content Security Policy"]
        await visits.send_message(page, f"show {HOSTILE}")
        await visits.wait_for_turns(page)
        await visits.send_message(page, "named files")
        await page.until("document.querySelector('.question')")
        assert await page.value("window.hacked ?? 0") == 0
        count = "document.querySelectorAll('#turns script, #turns iframe[srcdoc]').length"
        assert await page.value(count) == 0
        assert await page.value("document.querySelectorAll('a[href^=javascript]').length") == 0
        assert "\ufffd" in await page.text(".file-title")
        assert "\u202e" not in await page.text(".file")
        # Nothing is wider than the window, however long it is.
        for width in (400, 1400):
            await page.look(width=width)
            widths = "[document.documentElement.scrollWidth, innerWidth]"
            assert await page.value(widths) == [width, width]
            inner = (
                "[...document.querySelectorAll('#scroll')].map(e => e.scrollWidth - e.clientWidth)"
            )
            assert await page.value(inner) == [0]
        await page.press("Escape")
        await bot.rename(bot.requests[0].key, HOSTILE)
        assert await page.value("window.hacked ?? 0") == 0


@pytest.mark.gate
async def test_a_page_of_code_runs_and_reaches_nothing(serving_fake, browsing_as_people):
    tries = """<script>
      const found = [];
      const attempt = (name, action) => { try { action(); found.push(name); } catch {} };
      attempt("parent", () => parent.document.title);
      attempt("cookie", () => { if (!document.cookie) throw 0; });
      attempt("storage", () => localStorage.length);
      attempt("peers", () => new RTCPeerConnection());
      attempt("top", () => { top.location.href = "about:blank"; });
      const image = new Image();
      image.onload = image.onerror = null;
      image.src = "/picture?leak=1";
      fetch("/notebook").then(() => found.push("fetch")).catch(() => {}).then(() => {
        parent.postMessage("ran:" + found.join(), "*");
      });
    </script><div style="height:333px"></div>"""
    script = visits.make_script(values.Html(html=tries.encode(), plain="page"))
    async with serving_fake(script) as (_, client), browsing_as_people() as browser:
        page = await visits.open_page(browser, client)
        page.expected = ["Content Security Policy", "sandbox", "Unsafe attempt", "cross-origin"]
        await page.value(
            "addEventListener('message', e => { if (e.data?.startsWith) window.said = e.data })"
        )
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        # It says how tall it is.
        height = "parseInt(document.querySelector('iframe').style.height)"
        assert 340 < await page.until(height) < 500
        assert await page.until("window.said") == "ran:"
        assert not [one for one in page.requests if "leak" in one or one.endswith("/notebook")]
        assert await page.value("location.pathname") == "/"


async def test_a_page_that_is_as_tall_as_its_frame_does_not_grow(serving_fake, browsing_as_people):
    html = "<!doctype html><html><body><div style='height:100vh'></div></body></html>"
    script = visits.make_script(values.Html(html=html.encode(), plain="x"))
    async with serving_fake(script) as (_, client), browsing_as_people() as browser:
        page = await visits.open_page(browser, client)
        await page.value("said = []; onmessage = event => said.push(event.data.height)")
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        await page.until("said.includes(466)")
        await asyncio.sleep(0.3)
        assert await page.value("document.querySelector('iframe').style.height") == "466px"


async def test_limits_say_what_really_happens_beyond_them(serving_fake, browsing):
    limits = settings.Limits(memory_bytes=3 << 30)
    async with serving_fake(limits=limits) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/limits")
        await page.until("document.getElementById('panel').open")
        rows = await page.value(
            "[...document.querySelectorAll('#panel tr')].map(row => row.innerText)"
        )
        (memory,) = (row for row in rows if row.startswith("Memory"))
        assert "3 GiB" in memory
        assert "MemoryError; variables are kept." in memory
        assert not any("lost" in row for row in rows)


async def test_usage_is_shown_with_what_is_allowed(serving_fake, browsing):
    async def hello(turn):
        return "Hello."

    money = decimal.Decimal("0.021")
    spent = values.Usage(input_tokens=1200, output_tokens=345, money=money, cpu_seconds=1.5)
    opening = serving_fake({"hello": hello}, allowance=settings.DailyAllowance(tokens=100_000))
    async with opening as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "hello")
        await visits.wait_for_turns(page)
        (request,) = bot.requests
        await bot.spend(request.key, request.person.id, spent)
        await visits.send_message(page, "/usage")
        await page.until("document.getElementById('panel').open")
        shown = await page.value("document.getElementById('panel').innerText")
        assert "1,545 tokens, cost 0.0210, 1.5 s of processor time" in shown
        assert "1,545 tokens (100,000 allowed)" in shown
        assert "1,200 input, 345 output tokens" in shown


@pytest.mark.gate
async def test_what_is_too_much_is_refused_and_kept(serving_fake, browsing):
    limits = settings.Limits(upload_bytes=1000)
    async with serving_fake(limits=limits) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.press("Enter")
        assert await page.text("#complaint") == "Please write something first."
        long = "x" * 200_000
        await page.value(
            f"document.getElementById('message').value = {json.dumps(long)};"
            "document.getElementById('composer').requestSubmit()"
        )
        assert "200,000 characters" in await page.text("#complaint")
        assert await page.value("document.getElementById('message').value.length") == len(long)
        # The bot refuses as well, and what was written comes back.
        await page.value("document.getElementById('message').value = '/nonsense'")
        await page.press("Enter")
        await page.until("document.getElementById('complaint').innerText.includes('/help')")
        assert await page.value("document.getElementById('message').value") == "/nonsense"
        assert bot.requests == []


@pytest.mark.gate
async def test_files_are_dropped_chosen_and_refused(serving_fake, browsing, tmp_path):
    small, empty, big = tmp_path / "a b.csv", tmp_path / "empty", tmp_path / "big.bin"
    small.write_bytes(b"x,y\n1,2\n")
    empty.write_bytes(b"")
    big.write_bytes(b"x" * 100_001)
    limits = settings.Limits(upload_bytes=100_000)

    async def look(turn):
        return ", ".join(turn.request.files)

    async with serving_fake({"look": look}, limits=limits) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.drop_files(700, 400, small, empty)
        await page.until("document.querySelectorAll('#uploads .done').length === 2")
        await page.drop_files(700, 400, big)
        await page.until("document.getElementById('complaint').innerText.includes('big.bin')")
        assert "limit is 97.7 KiB" in await page.text("#complaint")
        await page.reload()
        await page.until("document.querySelectorAll('#uploads .done').length === 2")
        await visits.send_message(page, "look at them")
        await visits.wait_for_turns(page)
        assert bot.requests[0].files == ("a b.csv", "empty")
        assert await page.text(".words") == "a b.csv, empty"
        assert await page.text("#uploads") == ""
        assert "a b.csv" in await page.text(".asked-files")
        await page.click("#files")
        await page.until("document.querySelectorAll('#pane .file').length === 2")


async def test_an_attached_file_is_renamed_and_deleted_in_the_pane(
    serving_fake, browsing, tmp_path
):
    (tmp_path / "old.bin").write_bytes(b"x")
    buttons = "[...document.querySelectorAll('#pane button')]"

    async def press(page, words):
        await page.until(f"!{buttons}.find(e => e.innerText.startsWith('{words}'))?.click()")

    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.drop_files(700, 400, tmp_path / "old.bin")
        await page.until("document.querySelectorAll('#uploads .done').length === 1")
        await page.click("#files")
        await page.until("document.querySelector('#pane .file')")
        await press(page, "old.bin")
        await press(page, "Rename")
        await page.until("document.querySelector('dialog[open] input')")
        await page.value("document.querySelector('dialog[open] input').value = 'new.bin'")
        await page.value("document.querySelector('dialog[open] [value=yes]').click()")
        await page.until("document.getElementById('uploads').innerText === 'new.bin'")
        await page.until("document.querySelector('#pane .file')?.innerText.startsWith('new.bin')")
        await press(page, "new.bin")
        await press(page, "Delete")
        await page.until("document.querySelector('dialog[open]')")
        await page.value("document.querySelector('dialog[open] [value=yes]').click()")
        await page.until("document.getElementById('uploads').innerText === ''")


async def test_a_restart_in_the_middle_shows_what_was_and_goes_on(
    serving_fake, browsing, unused_tcp_port, tmp_path
):
    gate = asyncio.Event()

    async def long(turn):
        turn.reply.step(1)
        turn.reply.text("Half of it")
        await gate.wait()

    async def hello(turn):
        return "Hello again"

    web = settings.Web(listen=f"127.0.0.1:{unused_tcp_port}")
    script = {"long": long, "hello": hello}
    async with browsing() as browser:
        async with serving_fake(script, web=web) as (bot, client):
            page = await visits.open_page(browser, client)
            page.expected = ["WebSocket", "ERR_CONNECTION_REFUSED"]
            await visits.send_message(page, "hello first")
            await visits.wait_for_turns(page)
            await visits.send_message(page, "long story")
            await page.until("document.querySelectorAll('.words').length === 2")
            await visits.send_message(page, "hello waiting")
            await page.until("document.body.innerText.includes('1 request ahead')")
            await bot.wait_until_recorded(bot.requests[0].key)
            # What is there now is what a bot that was killed leaves behind.
            shutil.copytree(tmp_path / "bot-0", tmp_path / "killed")
        await page.until("!document.getElementById('banner').hidden")
        async with serving_fake(script, web=web, again="killed") as (_, client):
            await page.until("document.getElementById('banner').hidden", seconds=30)
            await page.until("document.body.innerText.includes('was restarted in the middle')")
            # What waited is begun again, once.
            await page.until("document.body.innerText.split('Hello again').length === 3")
            text = await page.text("#turns")
            for words in ("hello first", "long story", "hello waiting"):
                assert text.count(words) == 1
            assert await page.value("document.querySelectorAll('.turn').length") == 3
            await visits.send_message(page, "hello third")
            await page.until("document.body.innerText.split('Hello again').length === 4")


async def test_a_turn_that_another_bot_began_goes_on_where_it_stands(serving_fake, browsing):
    gate = asyncio.Event()

    async def going_on(turn):
        await turn.reply.code(0, turn.request.text)
        turn.reply.output(0, values.Text("stdout", "after\n"))
        await gate.wait()
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))
        return ""

    async with serving_fake({"go": going_on}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        key = values.SessionKey("web", thread=await page.value("location.hash.slice(1)"))
        await bot.go_on(key, "go on", person="you", request_id="1" * 32)
        await page.until("document.querySelector('#turns')?.innerText.includes('after')")
        for words in ("go on", "before", "after"):
            assert (await page.text("#turns")).count(words) == 1
        assert "Running" in await page.text("#turns")
        gate.set()
        await visits.wait_for_turns(page)


@pytest.mark.gate
async def test_several_conversations_stay_apart(serving_fake, browsing):
    async def echo(turn):
        return f"You said: {turn.request.text}"

    async with serving_fake({"echo": echo}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "echo one")
        await visits.wait_for_turns(page)
        await page.click("#new")
        await page.until("!document.getElementById('welcome').hidden")
        await page.type("unsent draft")
        await page.until("document.querySelectorAll('#conversations li').length === 1")
        await page.click("#conversations a")
        await page.until("document.body.innerText.includes('You said: echo one')")
        assert await page.value("document.getElementById('message').value") == ""
        await page.value("history.back()")
        await page.until("document.getElementById('message').value === 'unsent draft'")
        assert "You said" not in await page.text("#turns")
        await chosen(page, "Rename")
        await page.until("document.querySelector('dialog[open] input')")
        await page.type("Better name")
        await page.press("Enter")
        await page.until("document.getElementById('conversations').innerText.includes('Better')")
        for name, group in (("Pin", "Pinned"), ("Unpin", "Today"), ("Archive", "Archived (1)")):
            await chosen(page, name)
            heading = "document.querySelector('#conversations :is(h2, summary)')?.textContent"
            await page.until(f"{heading} === '{group}'")
        await page.value("document.getElementById('archived').open = true")
        await chosen(page, "Delete")
        await page.click("dialog[open] [value=no]")
        assert await bot.queries.history(bot.requests[0].key)
        await chosen(page, "Delete")
        await page.click("dialog[open] [value=yes]")
        await page.until("document.getElementById('conversations').childElementCount === 0")
        assert not await bot.queries.history(bot.requests[0].key)


async def chosen(page, name):
    """Choose what to do with the only conversation in the list."""
    await page.click("#conversations [aria-haspopup]")
    await page.until("document.querySelector('#actions:popover-open button')")
    await page.value(
        "[...document.querySelectorAll('#actions button')]"
        f".find((one) => one.textContent.startsWith('{name}')).click()"
    )


@pytest.mark.gate
async def test_conversations_are_found_by_what_was_said(serving_fake, browsing):
    async def echo(turn):
        return f"You said: {turn.request.text}"

    async with serving_fake({"echo": echo}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "echo of the <b>volcano</b>")
        await visits.wait_for_turns(page)
        await page.click("#new")
        await visits.send_message(page, "echo of the sea")
        await visits.wait_for_turns(page)
        await page.value("document.getElementById('search').focus()")
        await page.type("volc")
        await page.until("document.getElementById('found').textContent === '1 found'")
        shown = await page.text("#conversations")
        assert ("<b>volcano</b>" in shown, "sea" in shown) == (True, False)
        await page.click("#conversations a")
        await page.until("document.getElementById('turns').innerText.includes('volcano')")
        await page.value("document.getElementById('search').focus()")
        await page.press("Escape")
        await page.until("document.getElementById('conversations').innerText.includes('sea')")


@pytest.mark.gate
async def test_everything_is_done_by_keys(serving_fake, browsing):
    async def echo(turn):
        return "Echo."

    async with serving_fake({"echo": echo, "x": echo}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert await page.value("document.activeElement.id") == "message"
        await page.type("echo a")
        await page.press("Enter", modifiers=8)
        await page.type("second line")
        await page.press("Enter")
        await visits.wait_for_turns(page)
        assert bot.requests[0].text == "echo a\nsecond line"
        names = []
        for _ in range(3):
            await page.press("Tab")
            names.append(
                await page.value(
                    "document.activeElement.getAttribute('aria-label') || document.activeElement.id"
                )
            )
        assert names == ["Attach files", "python", "Send"]
        unnamed = await page.value(
            "[...document.querySelectorAll('button, input, select, textarea, iframe')]"
            ".filter(e => e.checkVisibility() && !(e.innerText || e.ariaLabel || e.title ||"
            " (e.labels && e.labels.length))).map(e => e.outerHTML)"
        )
        assert unnamed == []
        await page.value("document.getElementById('message').focus()")
        await page.click("#python")
        await page.until("document.activeElement.id === 'code'")
        await page.type("x = 1")
        await page.press("Enter")
        await page.press("Tab")
        await page.type("y")
        await page.press("Enter", modifiers=2)
        await visits.wait_for_turns(page, 2)
        assert (bot.requests[1].text, bot.requests[1].is_code) == ("x = 1\n    y", True)
        assert await page.value("document.getElementById('spoken').getAttribute('aria-live')")


@pytest.mark.gate
async def test_code_asks_in_the_turn(serving_fake, browsing):
    async def ask(turn):
        await turn.reply.code(0, turn.request.text)
        secret = await turn.reply.ask(0, values.InputRequested("Key: ", is_password=True))
        turn.reply.output(0, values.Text("stdout", f"{len(secret)} letters\n"))
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))

    async with serving_fake({"getpass()": ask}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/py getpass()")
        await page.until("document.activeElement.type === 'password'")
        await page.type("secret")
        await page.press("Enter")
        await visits.wait_for_turns(page)
        await page.until("document.querySelector('.outputs').innerText.includes('6 letters')")
        assert "secret" not in await page.text("#turns")


@pytest.mark.gate
async def test_what_fails_says_why_and_can_be_asked_again(serving_fake, browsing):
    async def fail(turn):
        raise errors.BotError("No money is left for today.")

    async with serving_fake({"fail": fail}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "fail please")
        await page.until("document.querySelector('.notice.bad')")
        assert "No money is left for today." in await page.text(".turn")
        # One button is enough to ask again.
        await visits.wait_for_turns(page)
        assert (await page.text(".turn button")).lower().count("again") == 1
        await page.click(".notice.bad button")
        assert await page.value("document.getElementById('message').value") == "fail please"


async def test_a_download_that_a_turn_waits_for_has_a_bar_even_after_a_reload(
    serving_fake, browsing
):
    on = asyncio.Event()

    async def play(turn):
        turn.reply.progress("Downloading the demo model (1.1 GB). Free.", 0.25)
        await on.wait()
        turn.reply.progress("Starting the demo model…", None)
        turn.reply.progress("", None)
        turn.reply.step(1)
        turn.reply.text("Here.")
        return "Here."

    async with serving_fake({"go": play}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "go")
        for _ in range(2):
            await page.until("document.querySelector('.state progress')?.value === 0.25")
            words = (await page.text(".state")).split()
            assert " ".join(words) == "Downloading the demo model (1.1 GB). Free. 25 %"
            await page.go(await page.value("location.href"))
        await page.until("document.querySelector('.state progress')")
        on.set()
        await visits.wait_for_turns(page)
        assert await page.value("document.querySelector('progress')") is None
        assert "Downloading" not in await page.text(".turn")


async def test_a_wide_table_says_what_is_shown_and_long_cells_are_opened(serving_fake, browsing):
    columns = tuple(f"c{number}" for number in range(100))
    long = "word " * 60
    table = values.Table(
        columns=("", *columns),
        rows=(("0", long, *("1",) * 99), ("1", "short", *("2",) * 99)),
        row_count=50,
        column_count=140,
        index_count=1,
        handle="t1",
    )
    async with serving_fake(visits.make_script(table)) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        # What draws tables is fetched with the first of them.
        shown = "document.querySelector('.output.table').innerText"
        size = "50 rows \u00d7 140 columns, the first 2 rows and 100 columns shown"
        await page.until(f"{shown}.includes('{size}')")
        await page.value("document.querySelector('.wide-table').scrollLeft = 1e6")
        last = "[...document.querySelectorAll('thead th')].at(-1).getBoundingClientRect().right"
        assert await page.value(f"{last} <= innerWidth")
        tall = "document.querySelector('tbody tr').getBoundingClientRect().height"
        before = await page.value(tall)
        await page.value("document.querySelector('.long').scrollIntoView({block: 'nearest'})")
        await page.click("tbody .long")
        assert await page.value(tall) > 3 * before
        await page.click("tbody .long")
        assert await page.value(tall) == before
        assert await page.value("document.querySelectorAll('tbody .long').length") == 1


async def test_a_frame_is_as_tall_as_what_is_in_it_and_its_margins(
    serving_fake, browsing_as_people
):
    html = (
        "<h2>Hello</h2><button>Press</button><p>End</p><script>setInterval(() => {"
        " const root = document.documentElement;"
        " const over = root.scrollHeight - root.clientHeight;"
        " parent.postMessage({inner: innerHeight, over}, '*')"
        "}, 50)</script>"
    )
    script = visits.make_script(values.Html(html=html.encode(), plain="x"))
    async with serving_fake(script) as (_, client), browsing_as_people() as browser:
        page = await visits.open_page(browser, client)
        await page.value(
            "addEventListener('message', ({data}) => { if (data.inner) said = data }), said = {}"
        )
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        frame = "parseInt(document.querySelector('iframe').style.height)"
        await page.until(f"said.inner === {frame}")
        assert await page.value("said.over") == 0


@pytest.mark.gate
@pytest.mark.first_case
@pytest.mark.parametrize("is_walled", [True, False], ids=["walled", "without the header"])
async def test_a_page_of_code_cannot_send_through_its_browser(
    serving_fake, browsing_as_people, monkeypatch, is_walled
):
    """By WebRTC, of its own or of frames in it, by links that connect beforehand, or otherwise."""
    if not is_walled and len(socket.if_nameindex()) < 2:
        pytest.skip("a browser without a network but the loopback sends nothing")
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        udp.bind(("127.0.0.1", 0))
        for listener in (udp, tcp):
            listener.setblocking(False)
        ports = {"UDP": str(udp.getsockname()[1]), "TCP": str(tcp.getsockname()[1])}
        html = re.sub("(UDP|TCP)_PORT", lambda found: ports[found[1]], LEAKS)
        script = visits.make_script(values.Html(html=html.encode(), plain="page"))
        async with serving_fake(script) as (_, client), browsing_as_people() as browser:
            page = await visits.open_page(browser, client)
            if not is_walled:
                monkeypatch.delitem(sandboxed_displays._FRAME_HEADERS, "Connection-Allowlist")
            page.expected = [""]  # Each of them is refused in words of its own.
            await page.value("said = []; onmessage = event => said.push(event.data)")
            await visits.send_message(page, "show")
            await visits.wait_for_turns(page)
            await page.until("said.includes('tried')")
            reached, began = set(), time.monotonic()
            while len(reached) < 2 and time.monotonic() - began < (1.5 if is_walled else 15):
                await asyncio.sleep(0.1)
                reached = {name for name, one in (("UDP", udp), ("TCP", tcp)) if _is_reached(one)}
    # Without the header, frames in it are walled no more: the test sees what gets through.
    assert reached == (set() if is_walled else {"UDP", "TCP"})


@pytest.mark.gate
async def test_an_operator_may_want_pages_without_scripts(serving_fake, browsing_as_people):
    html = "<p>Still.</p><script>parent.postMessage('ran', '*')</script>"
    web = settings.Web(listen="127.0.0.1:0", page_scripts=False)
    script = visits.make_script(values.Html(html=html.encode(), plain="page"))
    async with serving_fake(script, web=web) as (_, client), browsing_as_people() as browser:
        page = await visits.open_page(browser, client)
        page.expected = ["Blocked script execution"]
        await page.value("said = []; onmessage = event => said.push(event.data)")
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        await page.until("document.querySelector('iframe').dataset.loaded ?? true")
        await page.until("performance.getEntriesByType('resource').some(e => /frame/.test(e.name))")
        await asyncio.sleep(0.3)
        assert await page.value("said") == []


def _is_reached(listener):
    return bool(select.select([listener], [], [], 0)[0])


# Tries its own constructors, those of frames in every guise, and links that connect beforehand.
LEAKS = """<!doctype html><html><body><script>
const PEER = `(async () => {
  const servers = [{urls: "stun:127.0.0.1:UDP_PORT"},
    {urls: "turn:127.0.0.1:TCP_PORT?transport=tcp", username: "a", credential: "b"}];
  const peer = new RTCPeerConnection({iceServers: servers});
  peer.createDataChannel("x");
  await peer.setLocalDescription(await peer.createOffer());
})()`;
const inside = `<script>${PEER}<` + `/script>`;
const attempt = action => { try { action(); } catch {} };
const frame = (change, parent = document.body) => attempt(() => {
  const made = document.createElement("iframe");
  change(made);
  parent.append(made);
});
attempt(() => eval(PEER).catch(() => {}));
frame(made => { made.srcdoc = inside; });
frame(made => { made.src = "javascript:" + encodeURIComponent(PEER); });
frame(made => { made.src = "data:text/html," + encodeURIComponent(inside); });
frame(made => { made.src = URL.createObjectURL(new Blob([inside], {type: "text/html"})); });
attempt(() => {
  const host = document.createElement("div");
  document.body.append(host);
  frame(made => { made.srcdoc = inside; }, host.attachShadow({mode: "closed"}));
});
for (const rel of ["preconnect", "dns-prefetch", "prefetch", "preload", "modulepreload", "icon"])
  attempt(() => {
    const link = document.createElement("link");
    Object.assign(link, {rel, as: "script", href: `http://127.0.0.1:TCP_PORT/${rel}`});
    document.head.append(link);
  });
attempt(() => new WebSocket("ws://127.0.0.1:TCP_PORT"));
attempt(() => navigator.sendBeacon("http://127.0.0.1:TCP_PORT"));
attempt(() => new EventSource("http://127.0.0.1:TCP_PORT"));
attempt(() => new WebTransport("https://127.0.0.1:UDP_PORT"));
parent.postMessage("tried", "*");
</script></body></html>"""


async def test_panels_and_names_of_files_fit_on_a_phone(serving_fake, browsing):
    usage = values.Usage(steps=1, input_tokens=123_456, output_tokens=654_321)

    async def spend(turn):
        turn.reply.usage(usage)
        turn.make(0, f"{'long' * 40}.bin", b"x")
        return "Spent."

    async with serving_fake({"spend": spend}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client, width=390, height=844)
        await visits.send_message(page, "spend")
        await visits.wait_for_turns(page)
        name = "document.querySelector('.file .file-title').getBoundingClientRect().right"
        card = "document.querySelector('.file').getBoundingClientRect().right"
        assert await page.value(f"{name} <= {card}")
        for panel in ("limits", "usage", "network", "tools", "help"):
            await page.value(f"{visits.FIELD}.focus()")
            await visits.send_message(page, f"/{panel}")
            title = "document.getElementById('panel-title').textContent.toLowerCase()"
            await page.until(f"document.getElementById('panel').open && {title} === '{panel}'")
            body = "document.getElementById('panel-body')"
            assert await page.value(f"{body}.scrollWidth - {body}.clientWidth") == 0, panel
            assert "`" not in await page.text("#panel-body")
            await page.press("Escape")


async def test_the_end_stays_in_sight_as_the_room_for_writing_grows(serving_fake, browsing):
    async def tell(turn):
        turn.reply.step(1)
        return "\n\n".join(f"Line {number}." for number in range(60))

    async with serving_fake({"tell": tell}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client, height=700)
        await visits.send_message(page, "tell")
        await visits.wait_for_turns(page)
        pane = "document.getElementById('scroll')"
        at_end = f"{pane}.scrollTop + {pane}.clientHeight >= {pane}.scrollHeight - 2"
        await page.until(at_end)
        height = await page.value(f"{pane}.clientHeight")
        await page.value(f"{visits.FIELD}.focus()")
        await page.type("a\n" * 10)
        await page.until(f"{pane}.clientHeight < {height} - 50")
        await page.until(at_end)
        assert await page.value("document.getElementById('latest').hidden")
