"""Being asked before code runs: what is seen, what is chosen, and what then runs."""

import pytest

from interpreter_bot import settings, values
from tests.integration.web import visits

HIDDEN = "total = 1\r\nif total:\u202e pass\n"


def _asking(code, seen, *, words=""):
    async def play(turn):
        turn.reply.step(1)
        if words:
            turn.reply.text(words)
        subject = "plan" if words else "code"
        seen.append((turn.approval, await turn.reply.approve(0, code, subject=subject)))
        return "Done."

    return {"go": play}


@pytest.mark.gate
async def test_what_cannot_be_seen_in_code_is_shown_and_runs_unchanged(serving_fake, browsing):
    seen = []
    async with serving_fake(_asking(HIDDEN, seen)) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "go")
        await page.until("document.querySelector('.approval')")
        assert "Run this code?" in await page.text(".approval")
        assert "if total:⟨U+202E⟩ pass" in await page.text(".approval pre")
        assert "a character that nobody can see" in await page.text(".approval .bad")
        await page.click(".approval .strong")
        await visits.wait_for_turns(page)
        assert seen == [("never", HIDDEN)]
        for _ in range(2):
            await page.until("document.querySelector('.turn .notice')")
            assert "Run this code? Approved." in await page.text("#turns")
            await page.reload()


@pytest.mark.gate
async def test_code_is_edited_or_refused_and_a_tool_allowed_while_code_runs(serving_fake, browsing):
    seen = []

    async def call(turn):
        await turn.reply.code(0, "jira.delete()")
        seen.append(await turn.reply.approve(1, "tools.jira.delete()", choices=("session",)))
        turn.reply.output(0, values.Text("stdout", "deleted\n"))
        turn.reply.finished(0, values.Finished(values.Ending.OK, 0.1))

    script = _asking("x = 1", seen) | {"call": call}
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "go")
        await page.click(".approval [type=button]")
        await page.type("y = 2; ")
        await page.click(".approval .strong")
        await visits.wait_for_turns(page)
        await visits.send_message(page, "go")
        await page.click(".approval .row button:last-child")
        await visits.wait_for_turns(page, 2)
        await visits.send_message(page, "call")
        await page.until("document.querySelector('.approval')")
        assert await page.text(".approval .row button:nth-child(2)") == "For this session"
        await page.click(".approval .row button:nth-child(2)")
        await visits.wait_for_turns(page, 3)
        (_, edited), (_, refused), allowed = seen
        assert allowed == "session"
        assert "y = 2" in edited
        assert "x = 1" in edited
        assert refused is None


async def test_a_plan_is_asked_about_in_words(serving_fake, browsing):
    seen = []
    script = _asking("x = 1", seen, words="I will read the table and count its rows.")
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "/approval plan")
        await page.until("document.getElementById('panel').open")
        await page.press("Escape")
        await visits.send_message(page, "go")
        await page.until("document.querySelector('.approval')")
        assert "Carry out this plan?" in await page.text(".approval")
        await page.until("document.querySelector('.words').innerText.includes('I will read')")
        assert not await page.value("document.querySelector('.approval details').open")
        await page.click(".approval summary")
        assert await page.text(".approval pre") == "x = 1"
        await page.click(".approval .strong")
        await visits.wait_for_turns(page)
        assert seen == [("plan", "x = 1")]


async def test_a_person_chooses_and_the_operator_may_want_more(serving_fake, browsing):
    seen = []
    place = (settings.Place(places=("web",), approval="plan"),)
    async with (
        serving_fake(_asking("x = 1", seen), place=place) as (_, client),
        browsing() as browser,
    ):
        page = await visits.open_page(browser, client)
        await visits.choose(page, "more", "Approval")
        await page.until("document.getElementById('panel').open")
        assert "The operator requires a stricter setting" in await page.text("#panel")
        await page.click("#panel label:last-of-type")
        await page.until("!document.getElementById('panel').innerText.includes('stricter setting')")
        assert await page.value("document.activeElement.value") == "every"
        await page.press("Escape")
        await visits.send_message(page, "/approval sometimes")
        await page.until(
            "document.getElementById('complaint').innerText.includes('never, plan, every')"
        )
        await page.value(f"{visits.FIELD}.value = ''")
        await visits.send_message(page, "go")
        await page.until("document.querySelector('.approval')")
        assert "Run this code?" in await page.text(".approval")
        await page.click(".approval .strong")
        await visits.wait_for_turns(page)
        assert seen == [("every", "x = 1")]


async def test_the_model_is_answered_by_a_choice_or_by_words(serving_fake, browsing):
    answers = []

    async def ask(turn):
        turn.reply.step(1)
        for question in ("Which <b>region</b>?", "Which year?"):
            answers.append(await turn.reply.ask_for_model(question, "<i>North</i>", "South"))
        return "Done."

    async with serving_fake({"go": ask}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "go")
        await page.until("document.querySelector('.approval .row button')")
        assert "Which <b>region</b>?" in await page.text(".approval p")
        await page.click(".approval .row button")
        await page.until("document.querySelector('.approval p')?.textContent === 'Which year?'")
        await page.click(".approval input")
        await page.type("All")
        await page.click(".approval .strong")
        await visits.wait_for_turns(page)
        assert answers == ["<i>North</i>", "All"]
        for _ in range(2):
            await page.until("document.querySelector('.turn .notice')")
            assert "Which <b>region</b>? → <i>North</i>" in await page.text("#turns")
            await page.reload()
