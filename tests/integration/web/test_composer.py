"""Where people write: keys, drafts, commands and uploads, in a real browser."""

import asyncio

from tests.integration.web import visits

FIELD = visits.FIELD


async def _python(page, text):
    """Go to Python mode, and write."""
    await page.click("#python")
    await page.type(text)


async def _gated(bot):
    """Let no upload end until what is given is set."""
    gate = asyncio.Event()
    put = bot.put

    async def slow(key, attachment):
        await gate.wait()
        return await put(key, attachment)

    bot.put = slow
    return gate


async def test_tab_indents_the_lines_of_a_selection_and_undoing_brings_them_back(
    serving_fake, browsing
):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await _python(page, "a = 1\n\nb = 2")
        await page.value(f"{FIELD}.select()")
        await page.press("Tab")
        assert await page.value(f"{FIELD}.value") == "    a = 1\n\n    b = 2"
        await page.press("Tab", modifiers=8)
        await page.press("Tab", modifiers=8)
        assert await page.value(f"{FIELD}.value") == "a = 1\n\nb = 2"
        await page.value(f"{FIELD}.setSelectionRange(9, 9)")
        await page.press("Tab")
        assert await page.value(f"{FIELD}.value") == "a = 1\n\nb     = 2"
        await page.value("document.execCommand('undo')")
        await page.value(f"{FIELD}.setSelectionRange(0, 7)")
        await page.press("Tab")
        assert await page.value(f"{FIELD}.value") == "    a = 1\n\nb = 2"
        for _ in range(2):
            await page.value("document.execCommand('undo')")
        for _ in range(3):
            await page.value("document.execCommand('redo')")
        assert await page.value(f"{FIELD}.value") == "    a = 1\n\nb = 2"
        for _ in range(9):
            await page.value("document.execCommand('undo')")
        assert await page.value(f"{FIELD}.value") == ""


async def test_escape_leaves_the_editor_and_only_twice_elsewhere_stops(serving_fake, browsing):
    async def wait(turn):
        turn.reply.step(1)
        await asyncio.sleep(60)

    async with serving_fake({"wait": wait}) as (_, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await visits.say(page, "wait here")
        await page.until("!document.getElementById('stop').hidden")
        await _python(page, "x")
        for _ in range(3):
            await page.press("Escape")
        await page.press("Tab")
        assert await page.value("document.activeElement.id") == "attach"
        await page.press("Escape")
        assert await page.text("#stop") == "Esc again stops"
        assert await page.value(visits.ENDED) == 0
        await page.press("Escape")
        await visits.answered(page)
        assert await page.value("document.getElementById('stop').hidden")
        assert await page.value(f"{FIELD}.value") == "x"


async def test_the_skip_link_leads_to_the_message_of_this_conversation(serving_fake, browsing):
    async def hello(turn):
        return "Hello."

    async with serving_fake({"hello": hello}) as (_, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await visits.say(page, "hello")
        await visits.answered(page)
        where = await page.value("location.href")
        await page.value("document.querySelector('.skip').focus()")
        await page.press("Enter")
        assert await page.value("document.activeElement.id") == "message"
        # And by an address that names no conversation one stays as well.
        await page.value("location.hash = '#turns'")
        await page.until(f"location.href === '{where}'")
        assert await page.text(".words") == "Hello."


async def test_python_mode_is_kept_over_a_reload_and_another_conversation(serving_fake, browsing):
    pressed = "document.getElementById('python').getAttribute('aria-pressed')"

    async def hello(turn):
        return "Hello."

    async with serving_fake({"hello": hello, "x": hello}) as (bot, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await visits.say(page, "hello")
        await visits.answered(page)
        await page.click("#python")
        await page.click("#new")
        await page.until(f"{pressed} === 'false'")
        await page.until("document.querySelectorAll('#conversations li').length === 1")
        await page.click("#conversations a")
        await page.until(f"{pressed} === 'true'")
        await page.reload()
        await visits.answered(page)
        assert await page.value(pressed) == "true"
        await page.type("x")
        await page.press("Enter", modifiers=2)
        await visits.answered(page, 2)
        assert bot.requests[-1].is_code
        assert await page.value(pressed) == "true"


async def test_commands_are_understood_as_people_type_them(serving_fake, browsing):
    script = {"/Users": lambda turn: asyncio.sleep(0, "A folder.")}
    models = ("GPT-5", "Scribe 2")
    async with serving_fake(script, models=models) as (bot, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await visits.say(page, "/py")
        assert await page.value("document.getElementById('python').ariaPressed") == "true"
        assert await page.value(f"{FIELD}.value") == ""
        await page.click("#python")
        await visits.say(page, "/Help")
        await page.until("document.getElementById('panel').open")
        await page.press("Escape")
        await visits.say(page, "/Model scribe")
        await page.until("document.getElementById('model').value === 'Scribe 2'")
        assert await page.value("document.querySelectorAll('.turn').length") == 0
        await visits.say(page, "/Users and folders")
        await visits.answered(page)
        assert [one.text for one in bot.requests] == ["/Users and folders"]


async def test_a_picture_is_pasted_wherever_the_focus_is(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await page.value(
            "(() => { document.activeElement.blur(); const data = new DataTransfer();"
            " data.items.add(new File(['x'], 'shot.png', {type: 'image/png'}));"
            " document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data,"
            " bubbles: true, cancelable: true})); })()"
        )
        await page.until("document.querySelector('#uploads .done')")
        assert await page.text("#uploads .file-title") == "shot.png"


async def test_sixty_files_leave_the_page_as_large_as_the_window(serving_fake, browsing, tmp_path):
    files = [tmp_path / f"measurements of station {number}.csv" for number in range(60)]
    for file in files:
        file.write_text("1")
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.opened(browser, client, height=800)
        await page.choose_files("#picker", *files)
        await page.until("document.querySelectorAll('#uploads .done').length === 60", seconds=40)
        for width in (1280, 400):
            await page.look(width=width, height=800)
            heights = "[document.documentElement.scrollHeight, document.body.scrollHeight]"
            assert await page.value(heights) == [800, 800]
            top = "document.querySelector('.bar').getBoundingClientRect().top"
            assert await page.value(top) == 0
            assert await page.value("document.getElementById('uploads').clientHeight") <= 200


async def test_an_upload_goes_on_while_one_is_elsewhere(serving_fake, browsing, tmp_path):
    file = tmp_path / "big.bin"
    file.write_bytes(b"x" * 1000)
    async with serving_fake() as (bot, client), browsing() as browser:
        gate = await _gated(bot)
        page = await visits.opened(browser, client)
        await page.choose_files("#picker", file)
        await page.until("document.querySelector('#uploads progress')")
        await visits.say(page, "look at it")
        assert await page.text("#complaint") == "The upload is not finished yet."
        where = await page.value("location.hash")
        await page.click("#new")
        await page.until(f"location.hash !== '{where}'")
        assert await page.text("#uploads") == ""
        await page.value("history.back()")
        await page.until("document.querySelector('#uploads progress')")
        await page.click("#new")
        gate.set()
        await page.until(f"sessionStorage.getItem('draft-{where[1:]}').includes('\"going\":[]')")
        assert await page.text("#uploads") == ""
        await page.value("history.back()")
        await page.until("document.querySelector('#uploads .done')")
        assert await page.value(f"{FIELD}.value") == "look at it"


async def test_a_complaint_is_gone_when_what_it_was_about_is_over(serving_fake, browsing, tmp_path):
    file = tmp_path / "big.bin"
    file.write_bytes(b"x" * 1000)
    async with serving_fake() as (bot, client), browsing() as browser:
        gate = await _gated(bot)
        page = await visits.opened(browser, client)
        await page.choose_files("#picker", file)
        await visits.say(page, "look at it")
        assert "not finished" in await page.text("#complaint")
        gate.set()
        await page.until("document.getElementById('complaint').hidden")


async def test_leaving_the_page_with_an_upload_is_asked_about_and_said_later(
    serving_fake, browsing, tmp_path
):
    file = tmp_path / "big.bin"
    file.write_bytes(b"x" * 1000)
    async with serving_fake() as (bot, client), browsing() as browser:
        gate = await _gated(bot)
        page = await visits.opened(browser, client)
        await page.type("hello")
        await page.choose_files("#picker", file)
        await page.until("document.querySelector('#uploads progress')")
        reloading = asyncio.create_task(page.call("Page.reload"))
        assert await page.dialog() == "beforeunload"
        await page.call("Page.handleJavaScriptDialog", accept=True)
        await reloading
        await page.until("document.getElementById('complaint').innerText.includes('big.bin')")
        assert "attach it again" in await page.text("#complaint")
        assert await page.value(f"{FIELD}.value") == "hello"
        gate.set()


async def test_without_a_connection_buttons_say_so(serving_fake, browsing):
    async with browsing() as browser:
        async with serving_fake() as (_, client):
            page = await visits.opened(browser, client)
            page.expected = ["WebSocket", "ERR_CONNECTION_REFUSED"]
        await page.until("!document.getElementById('banner').hidden")
        assert await page.text("#banner") == "The connection is lost. Trying again…"
        await page.click("#files")
        assert await page.text("#complaint") == "There is no connection right now."


async def test_the_menu_is_used_by_keys(serving_fake, browsing):
    focused = "document.activeElement.innerText || document.activeElement.ariaLabel"
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.opened(browser, client)
        await page.value("document.querySelector('#more summary').focus()")
        await page.press("ArrowDown")
        assert await page.value(focused) == "Download as notebook"
        await page.press("ArrowDown")
        assert await page.value(focused) == "Fork conversation"
        await page.press("End")
        assert await page.value(focused) == "Reset Python…"
        await page.press("ArrowDown")
        assert await page.value(focused) == "Download as notebook"
        await page.press("ArrowUp")
        assert await page.value(focused) == "Reset Python…"
        await page.press("Escape")
        assert await page.value(focused) == "More"
        assert not await page.value("document.getElementById('more').open")


def _reluctant(look_up):
    """Look up the earliest requests slowest, as a busy database may."""
    waits = iter((0.20, 0.16, 0.12, 0.08, 0.04))

    async def history(key, *, most=50):
        await asyncio.sleep(next(waits, 0))
        return await look_up(key, most=most)

    return history


async def test_a_burst_is_answered_in_its_order_and_called_by_its_first_words(
    serving_fake, browsing
):
    async def echo(turn):
        return turn.request.text

    script = dict.fromkeys("ABCDE", echo)
    async with serving_fake(script) as (bot, client), browsing() as browser:
        bot.queries.history = _reluctant(bot.queries.history)
        page = await visits.opened(browser, client)
        await page.value(
            "for (const letter of 'ABCDE') { document.getElementById('message').value = letter;"
            " document.getElementById('composer').requestSubmit(); }"
        )
        await visits.answered(page, 5)
        assert [one.text for one in bot.requests] == list("ABCDE")
        assert (await page.text(".words")).split() == list("ABCDE")
        past = await bot.queries.history(bot.requests[0].key)
        assert [turn.request for turn in past] == list("ABCDE")
        await page.until("document.getElementById('conversations').innerText.includes('A')")
        assert list(bot.titles.values()) == ["A"]
