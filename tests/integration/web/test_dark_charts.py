"""Charts of real libraries on a dark page, in a real browser."""

import asyncio

import aiohttp
import pytest

from tests.integration.web import visits

PLOTLY = "import plotly.express as px\npx.bar(x=[1], y=[1])"
WHITE = PLOTLY + ".update_layout(plot_bgcolor='white')"
ALTAIR = (
    "import altair, pandas\n"
    "data = pandas.DataFrame({'a': [1, 2]})\n"
    "altair.Chart(data).mark_bar().encode(x='a')"
)
STYLER = "import pandas\npandas.DataFrame({'a': [1, 2]}).style"
DRAWN = "!!document.querySelector('.main-svg .bars path, #vega-chart svg, table')"
GROUND = "getComputedStyle(document.documentElement).backgroundColor"
INK = "getComputedStyle(document.querySelector('.main-svg text, #vega-chart svg text')).fill"
DARK, NONE = "rgb(32, 36, 41)", "rgba(0, 0, 0, 0)"
SOURCES = "[...document.querySelectorAll('#turns iframe')].map(e => e.getAttribute('src'))"


@pytest.mark.slow
@pytest.mark.kernel
async def test_charts_are_dark_on_a_dark_page_unless_they_have_colours_of_their_own(
    serving_kernels, browsing, tmp_path
):
    async with (
        serving_kernels() as (_, address),
        browsing() as browser,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        page = await browser.page()
        page.expected.append("'webrtc'")
        await page.look(width=1280, is_dark=True)
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        for count, code in enumerate((PLOTLY, WHITE, ALTAIR, STYLER), 1):
            await page.value("document.getElementById('message').focus()")
            await page.type(code)
            await page.press("Enter", modifiers=2)
            await page.until(f"document.querySelectorAll('#turns iframe').length === {count}")
            await visits.wait_for_turns(page, count)
        async with session.get(address) as response:
            origin = str(response.url.origin())
        grounds = []
        for number, source in enumerate(await page.value(SOURCES)):
            async with session.get(origin + source) as response:
                path = tmp_path / f"{number}.html"
                await asyncio.to_thread(path.write_bytes, await response.read())
            tab = await browser.page()
            await tab.go(path.as_uri())
            await tab.until(DRAWN)
            grounds.append(await tab.value(GROUND))
            if grounds[-1] == DARK:
                assert await tab.value(INK) in ("rgb(228, 230, 232)", "rgb(255, 255, 255)")
            await tab.close()
        assert grounds == [DARK, NONE, DARK, NONE]
        # What is chosen in the page holds for charts that are there already.
        await visits.choose(page, "more", "Light")
        await page.until(f"{SOURCES}.every(e => !e.includes('theme'))")
