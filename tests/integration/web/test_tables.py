"""Tables on the page, touched: with the kernel that has them, in a real browser."""

import asyncio

import pytest

from interpreter_bot import values
from tests.integration.web import visits

pytestmark = pytest.mark.kernel

CODE = (
    "import polars; shown = polars.DataFrame({'n': range(1_000_000)})"
    ".with_columns(word='<b>w' + (polars.col('n') % 10).cast(str)); shown"
)
EXPLORE = (
    "[...document.querySelectorAll('.output-tools button')].find(e => e.innerText === 'Explore')"
)
GRID = "document.querySelector('.grid')"
STATUS = "document.querySelector('.table-bar [role=status]').innerText"
FIRST = "document.querySelector('[data-column=\"0\"]:not(.unknown)')?.innerText"
SELECTED = "[...document.querySelectorAll('[aria-selected]')].map(e => e.innerText).join()"


@pytest.mark.slow
async def test_a_million_rows_are_sorted_filtered_searched_and_paged(serving_kernels, browsing):
    async with serving_kernels() as (service, address), browsing() as browser:
        page = await browser.page()
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        await page.value("document.getElementById('message').focus()")
        await page.type(CODE)
        await page.press("Enter", modifiers=2)
        await visits.wait_for_turns(page)
        assert not [one for one in page.requests if "/tables." in one or "/grids." in one]
        await page.value(f"{EXPLORE}.click()")
        await page.until(f"{STATUS}.startsWith('1,000,000 rows')")
        await page.until("document.querySelectorAll('.spread svg').length === 1")
        assert await page.value("document.querySelectorAll('.grid b').length") == 0
        assert await page.value("document.querySelectorAll('.grid [role=row]').length") < 50
        # To the last row, by the keyboard.
        await page.value(f"{GRID}.focus()")
        await page.press("End", modifiers=2)
        await page.until(f"{SELECTED} === '<b>w9'")
        active = f"document.getElementById({GRID}.getAttribute('aria-activedescendant'))"
        await page.until(f"{active}?.parentNode.getAttribute('aria-rowindex') === '1000001'")
        await page.value("document.querySelector('.sort').focus()")
        for direction in ("ascending", "descending"):
            await page.press("Enter")
            await page.until(f"document.querySelector('[aria-sort={direction}]')")
        await page.until(f"{FIRST} === '999999'")
        await page.value("document.querySelector('[aria-label=\"Filter word\"]').click()")
        await page.type("W7")
        await page.press("Enter")
        await page.until(
            f"{STATUS}.startsWith('100,000 of 1,000,000 rows') && {FIRST} === '999997'"
        )
        await page.value("document.querySelector('.table-bar input').focus()")
        await page.type("17")
        await page.until(f"{STATUS}.startsWith('1 of') && {FIRST} === '17'")
        await visits.choose(page, "python-state", "Variables")
        await page.click("#pane [aria-label='Explore shown']")
        await page.until("document.querySelector('#pane [data-row]')")
        assert "1,000,000" in await page.text("#pane .variables")
        await page.click("#pane [aria-label='Close the pane']")
        # Once Python has started anew, what was shown is there, and says so.
        thread = await page.value("location.hash.slice(1)")
        await service.reset(values.SessionKey("web", thread=thread))
        await page.click(".chip")
        said = "document.querySelector('.output.table .muted')?.innerText"
        await page.until(f"{said}?.includes('no longer has this table')")
        assert (await page.text(".output tbody tr:first-child")).split() == ["0", "<b>w0"]


WIDE = (
    "import pandas; pandas.DataFrame({f'column {n}': range(300) for n in range(90)},"
    " index=[f'row {n}' for n in range(300)])"
)
NAMES = "[...document.querySelectorAll('.grid-body .pinned')].map(e => e.innerText)"


async def _explored(browser, address, code):
    page = await browser.page(width=1600)
    await page.go(address)
    await page.until("!document.getElementById('welcome').hidden")
    await page.value("document.getElementById('message').focus()")
    await page.type(code)
    await page.press("Enter", modifiers=2)
    await visits.wait_for_turns(page)
    await page.value(f"{EXPLORE}.click()")
    await page.until(f"{STATUS}.includes('rows')")
    return page


@pytest.mark.slow
async def test_names_of_rows_stay_in_sight_and_a_table_takes_all_room(serving_kernels, browsing):
    async with serving_kernels() as (_, address), browsing() as browser:
        page = await _explored(browser, address, WIDE)
        assert await page.value(f"{GRID}.clientWidth") > 1000
        await page.value(f"{GRID}.scrollTop = 28 * 250; {GRID}.scrollLeft = 5000")
        await page.until(f"{NAMES}.includes('row 255')")
        name = "document.querySelector('.grid-body .pinned').getBoundingClientRect().left"
        assert await page.value(f"{name} - {GRID}.getBoundingClientRect().left") < 5
        click = (
            "[...document.querySelectorAll('.table-bar button')].find(e => e.innerText === '%s')"
        )
        await page.value(f"{click % 'Full screen'}.click()")
        await page.until(f"{GRID}.clientHeight > 700 && {NAMES}.includes('row 255')")
        assert await page.value(f"{GRID}.scrollLeft") == 5000
        await page.value(f"{click % 'Leave full screen'}.click()")
        await page.until(f"!document.fullscreenElement && {GRID}.clientHeight < 700")
        assert await page.value(f"{GRID}.scrollLeft") == 5000
        await page.value(f"{click % 'Close'}.click()")
        await page.until("!document.querySelector('.grid')")


async def test_a_table_that_python_has_no_more_takes_all_room_as_it_stands(serving_fake, browsing):
    table = values.Table(columns=("a",), rows=(("1",),), row_count=1, column_count=1)
    async with serving_fake(visits.make_script(table)) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        await page.click(".output-tools button:nth-of-type(2)")
        await page.until("document.fullscreenElement?.querySelector('td')?.innerText === '1'")
        await page.value("document.exitFullscreen()")
        await page.until("!document.fullscreenElement && !!document.querySelector('figure td')")
        assert "Full screen" in await page.text(".output-tools")
        # As on an iPhone.
        await page.value("Object.defineProperty(document, 'fullscreenEnabled', {value: false})")
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page, 2)
        await page.until("document.querySelectorAll('figure').length === 2")
        assert (await page.text(".output-tools")).count("Full screen") == 1


@pytest.mark.slow
async def test_a_table_is_explored_in_all_of_the_window(serving_kernels, browsing):
    async with serving_kernels() as (_, address), browsing() as browser:
        page = await browser.page(width=1280)
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        await page.value("document.getElementById('message').focus()")
        await page.type("import pandas; pandas.DataFrame({'a': [1, 2]})")
        await page.press("Enter", modifiers=2)
        await visits.wait_for_turns(page)
        full = "[...document.querySelectorAll('.output-tools button')]"
        await page.value(f"{full}.find(e => e.innerText === 'Full screen').click()")
        await page.until("document.fullscreenElement?.querySelector('[data-row]')")
        await page.value("document.exitFullscreen()")
        await page.until("!document.fullscreenElement && !!document.querySelector('.grid')")


@pytest.mark.gate
async def test_a_small_table_is_explored_and_saved_and_leaves_no_file(serving_kernels, browsing):
    code = "import pandas; pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"
    async with serving_kernels() as (service, address), browsing() as browser:
        page = await _explored(browser, address, code)
        await page.value(
            "[...document.querySelectorAll('.output-tools button')]"
            ".find(e => e.innerText === 'All as CSV').click()"
        )
        try:
            saved = await browser.wait_for_download()
        except TimeoutError:
            pytest.fail(await page.value("document.body.innerText"))
        assert saved.name.endswith("table.csv")
        assert saved.read_text() == ",a,b\n0,1,x\n1,2,y\n"
        thread = await page.value("location.hash.slice(1)")
        key = values.SessionKey("web", thread=thread)
        for _ in range(400):
            if not (left := await service.queries.files(key)):
                break
            await asyncio.sleep(0.05)
        assert left == ()
