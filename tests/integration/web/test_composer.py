"""Where people write: keys, drafts, commands and uploads, in a real browser."""

import asyncio

import pytest

from interpreter_bot import values
from interpreter_bot.sessions import live_completions, live_data_views
from tests.integration.web import visits

FIELD = visits.FIELD
EDITING = "document.activeElement.id === 'code'"


async def _python(page, text):
    """Go to Python mode, and write."""
    await page.click("#python")
    await page.until(EDITING)
    await page.type(text)


async def _nothing(turn):
    return ""


async def _gated(bot):
    """Let no upload end until what is given is set."""
    gate = asyncio.Event()
    put = bot.put_file

    async def slow(key, attachment):
        await gate.wait()
        return await put(key, attachment)

    bot.put_file = slow
    return gate


@pytest.mark.gate
async def test_python_is_written_in_an_editor(serving_fake, browsing):
    async with serving_fake({"a": _nothing, "b": _nothing}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert not [one for one in page.requests if one.endswith(("editor.js", "codemirror.js"))]
        await _python(page, "a = 1\nb = 2")
        written = f"{FIELD}.value"
        await page.press("a", modifiers=2)
        await page.press("Tab")
        assert await page.value(written) == "    a = 1\n    b = 2"
        await page.press("z", modifiers=2)
        assert await page.value(written) == "a = 1\nb = 2"
        for modifiers in (0, 8, 8):
            await page.press("Tab", modifiers=modifiers)
        assert await page.value(written) == "a = 1\nb = 2"
        await page.press("End")
        await page.press("Tab")
        assert await page.value(written) == "a = 1\nb = 2   "
        # What a bracket opens is closed, and a block is indented.
        await page.press("a", modifiers=2)
        await page.type("(")
        assert await page.value(written) == "(a = 1\nb = 2   )"
        await page.press("a", modifiers=2)
        await page.type("if a:")
        await page.press("Enter")
        await page.type("b")
        await page.type("(")
        assert await page.value(written) == "if a:\n    b()"
        # What was run comes back by the arrows, and what was not sent after it.
        for code in ("a = 1", "b = 2"):
            await page.press("a", modifiers=2)
            await page.type(code)
            await page.press("Enter", modifiers=2)
            await page.until(f"{written} === ''")
        await page.until("document.querySelectorAll('.code-asked').length === 2")
        await page.type("c")
        found = []
        for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"):
            await page.press(key)
            found.append(await page.value(written))
        assert found == ["b = 2", "a = 1", "a = 1", "b = 2", "c"]
        await page.click("#python")
        assert await page.value("document.activeElement.id") == "message"
        assert await page.value(written) == "c"


async def test_completions_of_python_are_text_and_chosen_by_keys(serving_fake, browsing):
    hostile = "<img src=x onerror=alert(1)>"
    found = live_completions.Completions(
        typed=0,
        options=(("price", "property", "column"), (hostile, "text", hostile)),
        signature=live_completions.Signature(label=f"head({hostile})", doc=hostile),
    )

    async def completions(key, code):
        told.append(code)
        if code.endswith("."):
            return found
        raise live_data_views.PythonBusyError

    told = []
    inside = "document.getElementById('code').shadowRoot"
    listed = f"[...{inside}.querySelectorAll('[role=option]')].map(e => e.textContent).join()"
    async with serving_fake() as (bot, client), browsing() as browser:
        bot.queries.complete_code = completions
        page = await visits.open_page(browser, client)
        await _python(page, "total = 1\ndf")
        await page.type(".")
        await page.until(f"{listed} === 'pricecolumn,{hostile}{hostile}'")
        assert told[-1] == "total = 1\ndf."
        signed = f"{inside}.querySelector('.cm-signature').textContent"
        await page.until(f"{signed} === 'head({hostile}){hostile}'")
        assert await page.value(f"{inside}.querySelectorAll('img').length") == 0
        # What has just appeared is not chosen by a key that was meant for something else.
        await asyncio.sleep(0.2)
        await page.press("Tab")
        assert await page.value(f"{FIELD}.value") == "total = 1\ndf.price"
        # Python says nothing: there is still what stands in the code itself.
        await page.press("Enter")
        await page.type("tot")
        await page.until(f"{listed} === 'total'")
        await page.press("Escape")
        assert await page.value(listed) == ""
        await page.press("Tab")
        assert (await page.value(f"{FIELD}.value")).endswith("tot ")
        # What Python says of code that is no longer there is not shown at what is.
        late = await page.value(
            "(async () => { const {Editor} = await import('/editor.js'); let tell;"
            " const place = document.body.appendChild(document.createElement('div'));"
            " const ask = ({query_id}) => (tell = (found) => dispatchEvent("
            "new CustomEvent('data-read', {detail: {query_id, ...found}})), true);"
            " const editor = new Editor(place, {onChange() {}, askPython: ask});"
            " editor.replaceText('f(');"
            " const asked = editor.completeCode("
            "{pos: 2, state: editor.view.state, explicit: true});"
            " editor.reset('g'); tell({signature: {label: 'f(x)', doc: ''}});"
            " await asked.catch(() => null);"
            " return place.shadowRoot.querySelectorAll('.cm-signature').length; })()"
        )
        assert late == 0


async def test_escape_leaves_the_editor_and_only_twice_elsewhere_stops(serving_fake, browsing):
    async def wait(turn):
        turn.reply.step(1)
        await asyncio.sleep(60)

    async with serving_fake({"wait": wait}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "wait here")
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
        await visits.wait_for_turns(page)
        assert await page.value("document.getElementById('stop').hidden")
        assert await page.value(f"{FIELD}.value") == "x"


async def test_the_skip_link_leads_to_the_message_of_this_conversation(serving_fake, browsing):
    async def hello(turn):
        return "Hello."

    async with serving_fake({"hello": hello}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "hello")
        await visits.wait_for_turns(page)
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
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "hello")
        await visits.wait_for_turns(page)
        await page.click("#python")
        await page.click("#new")
        await page.until(f"{pressed} === 'false'")
        await page.until("document.querySelectorAll('#conversations li').length === 1")
        await page.click("#conversations a")
        await page.until(f"{pressed} === 'true'")
        await page.reload()
        await visits.wait_for_turns(page)
        assert await page.value(pressed) == "true"
        await page.until(EDITING)
        await page.type("x")
        await page.press("Enter", modifiers=2)
        await visits.wait_for_turns(page, 2)
        assert bot.requests[-1].is_code
        assert await page.value(pressed) == "true"


@pytest.mark.gate
async def test_commands_are_understood_as_people_type_them(serving_fake, browsing):
    script = {"/Users": lambda turn: asyncio.sleep(0, "A folder.")}
    models = ("GPT-5", "Scribe 2")
    async with serving_fake(script, models=models) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/py")
        assert await page.value("document.getElementById('python').ariaPressed") == "true"
        assert await page.value(f"{FIELD}.value") == ""
        await page.click("#python")
        await visits.send_message(page, "/Help")
        await page.until("document.getElementById('panel').open")
        await page.press("Escape")
        await visits.send_message(page, "/Model scribe")
        await page.until("document.getElementById('model').value === 'Scribe 2'")
        assert await page.value("document.querySelectorAll('.turn').length") == 0
        await visits.send_message(page, "/Users and folders")
        await visits.wait_for_turns(page)
        assert [one.text for one in bot.requests] == ["/Users and folders"]


async def test_a_picture_is_pasted_wherever_the_focus_is(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.value(
            "(() => { document.activeElement.blur(); const data = new DataTransfer();"
            " data.items.add(new File(['x'], 'shot.png', {type: 'image/png'}));"
            " document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data,"
            " bubbles: true, cancelable: true})); })()"
        )
        await page.until("document.querySelector('#uploads .done')")
        assert await page.text("#uploads .file-title") == "shot.png"


@pytest.mark.slow
async def test_sixty_files_leave_the_page_as_large_as_the_window(serving_fake, browsing, tmp_path):
    files = [tmp_path / f"measurements of station {number}.csv" for number in range(60)]
    for file in files:
        file.write_text("1")
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client, height=800)
        await page.choose_files("#picker", *files)
        await page.until("document.querySelectorAll('#uploads .done').length === 60", seconds=40)
        for width in (1280, 400):
            await page.look(width=width, height=800)
            heights = "[document.documentElement.scrollHeight, document.body.scrollHeight]"
            assert await page.value(heights) == [800, 800]
            top = "document.querySelector('.bar').getBoundingClientRect().top"
            assert await page.value(top) == 0
            assert await page.value("document.getElementById('uploads').clientHeight") <= 200


async def test_a_message_waits_for_its_files(serving_fake, browsing, tmp_path):
    file, other = tmp_path / "big.bin", tmp_path / "dot.png"
    file.write_bytes(b"x" * 1000)
    other.write_bytes(visits.png())
    async with serving_fake({"look": _nothing}) as (bot, client), browsing() as browser:
        gate = await _gated(bot)
        page = await visits.open_page(browser, client)
        await page.choose_files("#picker", file)
        await page.until("document.querySelector('#uploads progress')")
        await visits.send_message(page, "look at it")
        assert "once its files are uploaded" in await page.text("#complaint")
        assert await page.value(f"{FIELD}.value") == "look at it"
        assert not bot.requests
        gate.set()
        await visits.wait_for_turns(page)
        assert [(one.text, one.files) for one in bot.requests] == [("look at it", ("big.bin",))]
        assert await page.value(f"{FIELD}.value") == ""
        assert await page.value("document.getElementById('complaint').hidden")
        # What has arrived can be looked at before it is sent.
        await page.choose_files("#picker", other)
        await page.until("document.querySelector('#uploads .done img')?.naturalWidth === 3")
        await page.click("#uploads .look")
        await page.until("document.getElementById('pane')?.innerText.includes('dot.png')")


async def test_a_file_that_is_chosen_first_goes_along_though_it_is_sent_at_once(
    serving_fake, browsing
):
    async with serving_fake({"look": _nothing}) as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert not [one for one in page.requests if "uploads" in one]
        # All of it before the module that uploads files can have been fetched.
        await page.value(
            "(() => { const data = new DataTransfer(); data.items.add(new File(['x'], 'x.csv'));"
            " const picker = document.getElementById('picker'); picker.files = data.files;"
            " picker.dispatchEvent(new Event('change'));"
            f" {FIELD}.value = 'look at it';"
            " document.getElementById('composer').requestSubmit(); })()"
        )
        await visits.wait_for_turns(page)
        assert [(one.text, one.files) for one in bot.requests] == [("look at it", ("x.csv",))]


@pytest.mark.gate
async def test_a_message_whose_file_does_not_arrive_is_not_sent_and_a_sample_is_there(
    serving_fake, browsing, tmp_path
):
    file = tmp_path / "big.bin"
    file.write_bytes(b"x" * 1000)
    async with serving_fake() as (bot, client), browsing() as browser:
        gate = await _gated(bot)
        page = await visits.open_page(browser, client)
        await page.choose_files("#picker", file)
        await visits.send_message(page, "look at it")
        await page.click("#uploads .going .icon")
        await page.until("document.getElementById('uploads').childElementCount === 0")
        assert await page.value(f"{FIELD}.value") == "look at it"
        gate.set()
        await page.click(".sample button")
        await page.until("document.querySelector('#uploads .done')")
        assert "sales.csv" in await page.value(f"{FIELD}.value")
        lines = bot.contents(
            values.SessionKey("web", thread=(await page.value("location.hash"))[1:])
        )
        assert lines["sales.csv"].count(b"\n") == 1 + 730 * 3
        assert not bot.requests


async def test_leaving_the_page_with_an_upload_is_asked_about_and_said_later(
    serving_fake, browsing, tmp_path
):
    file = tmp_path / "big.bin"
    file.write_bytes(b"x" * 1000)
    async with serving_fake() as (bot, client), browsing() as browser:
        gate = await _gated(bot)
        page = await visits.open_page(browser, client)
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


@pytest.mark.gate
async def test_without_a_connection_buttons_say_so(serving_fake, browsing):
    async with browsing() as browser:
        async with serving_fake() as (_, client):
            page = await visits.open_page(browser, client)
            page.expected = ["WebSocket", "ERR_CONNECTION_REFUSED"]
        await page.until("!document.getElementById('banner').hidden")
        assert await page.text("#banner") == "The connection is lost. Trying again…"
        await page.click("#files")
        assert (await page.text("#complaint")).startswith("There is no connection right now.")
        await page.type("x")
        await page.until("document.getElementById('complaint').hidden")
        # What draws the menu is fetched with the first press.
        await page.click("#more")
        await page.until("!document.getElementById('complaint').hidden")
        assert (await page.text("#complaint")).startswith("There is no connection right now.")


async def test_the_menu_is_used_by_keys(serving_fake, browsing):
    focused = "(document.activeElement.innerText || document.activeElement.ariaLabel)"
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.value("document.getElementById('share').focus()")
        await page.press("ArrowDown")
        await page.until(f"{focused} === 'As a web page'")
        for key, words in {
            "ArrowDown": "As a notebook",
            "End": "Print",
            "ArrowUp": "As Python",
        }.items():
            await page.press(key)
            assert await page.value(focused) == words
        await page.press("Escape")
        assert await page.value(focused) == "Share"
        expanded = "document.getElementById('share').ariaExpanded"
        await page.until(f"{expanded} === 'false'")


async def test_a_second_press_closes_a_menu(serving_fake, browsing):
    is_open = "document.getElementById('actions').matches(':popover-open')"
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for wanted in (True, False, True):
            await page.click("#more")
            await page.until(f"{is_open} === {str(wanted).lower()}")
            await page.wait_for_frame()
            assert await page.value(is_open) is wanted


async def test_the_bar_shows_what_python_does_and_restarts_it(serving_fake, browsing):
    state = "document.getElementById('python-state')"
    go_on = asyncio.Event()

    async def wait(turn):
        turn.reply.step(1)
        await go_on.wait()
        return "Waited."

    async with serving_fake({"wait": wait}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert await page.text("#python-state") == "Python stopped"
        await visits.send_message(page, "wait")
        await page.until(f"{state}.innerText === 'Python running'")
        go_on.set()
        await visits.wait_for_turns(page)
        await page.until(f"{state}.dataset.state !== 'running'")
        await visits.choose(page, "python-state", "Restart Python…")
        await page.until("document.querySelector('dialog[open]')")
        await page.click("dialog[open] [value=yes]")
        await page.until("document.getElementById('turns').innerText.includes('Reset.')")


async def test_colours_are_chosen_and_kept(serving_fake, browsing):
    ground = "getComputedStyle(document.body).backgroundColor"
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.look(width=1280, is_dark=True)
        dark = await page.value(ground)
        await visits.choose(page, "more", "Light")
        await page.until(f"{ground} !== '{dark}'")
        await page.reload()
        assert await page.value(ground) != dark
        await page.click("#more")
        chosen = "[...document.querySelectorAll('#actions [role=menuitemradio]')]"
        await page.until("document.querySelector('#actions:popover-open')")
        assert await page.value(f"{chosen}.map(e => e.ariaChecked)") == ["false", "true", "false"]
        await page.press("Escape")
        await visits.choose(page, "more", "As the system")
        await page.until(f"{ground} === '{dark}'")


def _reluctant(look_up):
    """Look up the earliest requests slowest, as a busy database may."""
    waits = iter((0.20, 0.16, 0.12, 0.08, 0.04))

    async def history(key, *, limit=50):
        await asyncio.sleep(next(waits, 0))
        return await look_up(key, limit=limit)

    return history


async def test_a_burst_is_answered_in_its_order_and_called_by_its_first_words(
    serving_fake, browsing
):
    async def echo(turn):
        return turn.request.text

    script = dict.fromkeys("ABCDE", echo)
    async with serving_fake(script) as (bot, client), browsing() as browser:
        bot.queries.history = _reluctant(bot.queries.history)
        page = await visits.open_page(browser, client)
        await page.value(
            "for (const letter of 'ABCDE') { document.getElementById('message').value = letter;"
            " document.getElementById('composer').requestSubmit(); }"
        )
        await visits.wait_for_turns(page, 5)
        assert [one.text for one in bot.requests] == list("ABCDE")
        assert (await page.text(".words")).split() == list("ABCDE")
        past = await bot.queries.history(bot.requests[0].key)
        assert [turn.record.request for turn in past] == list("ABCDE")
        await page.until("document.getElementById('conversations').innerText.includes('A')")
        assert list(bot.titles.values()) == ["A"]


async def test_a_message_that_ends_each_connection_is_given_back(serving_fake, browsing):
    tries = []

    async def broken(*_, **__):
        tries.append(1)
        raise asyncio.CancelledError

    async with serving_fake() as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        bot.events.claim = broken
        await visits.send_message(page, "hello")
        await page.until("document.getElementById('complaint').innerText.includes('kept here')")
        assert await page.value("document.getElementById('message').value") == "hello"
        assert len(tries) == 5


async def test_a_long_line_of_code_hides_no_other(serving_fake, browsing):
    async with serving_fake(models=()) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.until("document.querySelector('#code').shadowRoot")
        await page.click("#code")
        await page.type("first = 1\nlong = '" + "word " * 200 + "'")
        scroller = "document.querySelector('#code').shadowRoot.querySelector('.cm-scroller')"
        await page.until(f"{scroller}.innerText.includes('word word')")
        assert await page.value(f"{scroller}.scrollWidth <= {scroller}.clientWidth")


async def test_enter_that_chooses_a_word_does_not_confirm_a_dialog(serving_fake, browsing):
    field = "document.querySelector('.small-dialog input')"
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.value(
            "import('/dialogs.js').then(dialogs => void dialogs.askForText("
            "'Rename', {label: 'Name', value: 'x', action: 'Rename'}))"
        )
        await page.until(f"{field} !== null")
        press = "dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, "
        await page.value(f"{field}.{press}isComposing: true}}))")
        assert await page.value("document.querySelector('.small-dialog').open")
        await page.value(f"{field}.{press}}}))")
        await page.until(f"{field} === null")
