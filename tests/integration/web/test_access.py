"""What people without a mouse, or without seeing, need of the page."""

import pytest

from interpreter_bot import values
from tests.integration.web import visits

UNNAMED = """[...document.querySelectorAll('button, a, input, select, textarea, iframe, summary')]
  .filter(e => e.checkVisibility())
  .filter(e => !(e.ariaLabel || e.title || e.labels?.length || [...e.querySelectorAll('img[alt]')]
    .some(i => i.alt) || (e.textContent.trim() && [...e.querySelectorAll('*'), e].some(n =>
      [...n.childNodes].some(c => c.nodeType === 3 && c.data.trim()) && n.checkVisibility()))))
  .map(e => e.outerHTML)"""
CUT = """[...document.querySelectorAll('*')].filter(e => e.checkVisibility() && e.clientHeight &&
    /auto|scroll/.test(getComputedStyle(e).overflowY + getComputedStyle(e).overflowX) &&
    (e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1))
  .filter(e => e.tabIndex < 0 && !e.querySelector('a, button, input, textarea, [tabindex="0"]'))
  .map(e => e.className || e.id)"""
LEVELS = """[...document.querySelectorAll('main h1, main h2, main h3, main h4, main h5, main h6')]
  .filter(e => e.checkVisibility()).map(e => Number(e.tagName[1]))"""

ANSWER = (
    "### Result\n\nText\n\n##### Detail\n\n| | n |\n|--|--|\n| a | 1 |\n\n## Next\n\n" + "w " * 99
)


@pytest.mark.gate
async def test_everything_has_a_name_at_every_width(serving_fake, browsing):
    script = visits.make_script(text="Here is `made.csv`.", artifacts=[("made.csv", b"1,2\n")])
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        for width in (1400, 800, 400):
            await page.look(width=width)
            assert await page.value(UNNAMED) == []
        names = "[...document.querySelectorAll('.file .small')].map(e => e.textContent.trim())"
        assert await page.value(names) == ["View made.csv", "Download made.csv"]
        assert await page.text("#files") == "Files"


async def test_what_is_cut_off_is_reached_by_keys_and_nothing_else_is_in_the_way(
    serving_fake, browsing
):
    long = "".join(f"line {number}\n" for number in range(100))
    script = visits.make_script(values.Text("stdout", long), values.Result(plain=long))
    script["short"] = visits.make_script(values.Text("stdout", "one line\n"))["show"]
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show " + "many words " * 400)
        await visits.wait_for_turns(page)
        await page.click(".work:not([open]) summary")
        await page.until("document.querySelector('.printed').tabIndex === 0")
        assert await page.value(CUT) == []
        await visits.send_message(page, "short")
        await visits.wait_for_turns(page, 2)
        await page.click(".work:not([open]) summary")
        tabs = "[...document.querySelectorAll('.printed, .bubble')].map(e => e.tabIndex)"
        assert await page.value(tabs) == [0, 0, -1, -1]


async def test_headings_tables_and_landmarks_are_in_order(serving_fake, browsing):
    table = values.Table(
        columns=("", "n"), rows=(("a", "1"),), row_count=1, column_count=1, index_count=1
    )
    script = visits.make_script(table, text=ANSWER)
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for number in (1, 2):
            await visits.send_message(page, "show")
            await visits.wait_for_turns(page, number)
        levels = await page.value(LEVELS)
        assert levels == [1, *([2, 3, 4, 3] * 2)]
        empty = "[...document.querySelectorAll('th')].filter(e => !e.innerText.trim()).length"
        assert await page.value(empty) == 0
        landmarks = "document.querySelectorAll('#turns :is(section, [role=region])').length"
        assert await page.value(landmarks) == 0


async def test_the_page_is_sent_packed_to_those_who_can_unpack_it(serving_fake):
    async with serving_fake() as (_, client):
        sizes = []
        for encoding in ("gzip", "identity"):
            headers = {"Accept-Encoding": encoding}
            async with client.get("/turns.css", headers=headers) as response:
                assert response.headers["Vary"] == "Accept-Encoding"
                assert ".turn" in await response.text()
                sizes.append(int(response.headers["Content-Length"]))
        assert sizes[0] * 2 < sizes[1]
