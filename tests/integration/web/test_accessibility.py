"""What axe-core says of the page, and of visits, with every kind of output."""

import importlib.resources

import pytest

from interpreter_bot import settings, values
from interpreter_bot.sessions import requests
from tests.fakes import replies
from tests.integration.web import visits

OURS = values.SessionKey("slack", "T1", "C1", "17.1")
AXE = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
# Pages of code are not ours, and a frame that is walled off cannot be looked into.
RUN = """
axe.run(document, {iframes: false, resultTypes: ["violations"]}).then(({violations}) =>
  violations.flatMap(({id, nodes}) => nodes.map((node) => `${id}: ${node.target} ${node.html}`)))
"""
WORDS = """# Words
Some `code`, a [link](http://x.test/), **bold**, $x^2$.

- [ ] one

| a | b |
|---|---|
| 1 | 2 |

```python
print(1)
```
"""
COLOURS = {
    (): "(prefers-color-scheme: light) and (forced-colors: none)",
    ("is_dark",): "(prefers-color-scheme: dark)",
    ("has_forced_colors",): "(forced-colors: active)",
}
LONG = "long " * 200
GROUNDS = "".join(
    f"\x1b[{dim}{fore};{back}m{fore}{back}\x1b[0m\n"
    for fore in (*range(30, 38), *range(90, 98), 39)
    for back in (*range(40, 48), *range(100, 108), 49)
    for dim in ("", "2;")
)
# The least contrast of text by WCAG, of colours as a browser paints them.
CONTRAST = """
(() => {
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const paint = (...colours) => {
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const light = (pixel) => [.2126, .7152, .0722].reduce((sum, part, at) => {
    const value = pixel[at] / 255;
    return sum + part * (value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4);
  }, 0);
  const ground = (e) => getComputedStyle(e).backgroundColor;
  const grounds = (e) => e ? [...grounds(e.parentElement), ground(e)] : ["white"];
  return Math.min(...[...document.querySelectorAll(".printed span[class]")].map((e) => {
    const {color, opacity} = getComputedStyle(e);
    const below = paint(...grounds(e));
    context.globalAlpha = Number(opacity);
    const above = paint(color);
    context.globalAlpha = 1;
    const [less, more] = [light(below), light(above)].sort((a, b) => a - b);
    return (more + .05) / (less + .05);
  }));
})()
"""
TABLE = values.Table(
    columns=("", "name", "n"),
    rows=tuple((str(n), LONG, str(n)) for n in range(30)),
    row_count=100,
    column_count=2,
    index_count=1,
    handle="t1",
)
OUTPUTS = (
    "printed\n\x1b[31mred\x1b[0m " + LONG,
    values.Text("stderr", "a warning\n"),
    values.Result(plain="42"),
    values.Result(plain="# Markdown\n> quoted", is_markdown=True),
    values.Json(json='{\n  "a": 1\n}', plain="{}"),
    values.Latex(latex="$x^2$", plain="x**2"),
    values.Image(mime="image/png", data=visits.png(300, 200), plain="Figure: Sales"),
    values.Html(html=b"<p>page</p>", plain="A page", title="A page"),
    TABLE,
    values.Notice("Something was left out."),
    values.Error("ValueError", "wrong", "line 1\nValueError: wrong"),
)


async def _show(turn):
    turn.reply.step(1)
    turn.reply.text("I shall look.")
    await turn.run(0, "show()", *OUTPUTS, ending=values.Ending.ERROR)
    turn.reply.step(2)
    turn.reply.text(WORDS)
    files = {"a.csv": b"a,b\n1,2\n", "b.png": visits.png(30, 20), "c.html": b"<p>x</p>"}
    for name, data in files.items():
        (turn.directory / name).write_bytes(data)
        turn.make(0, name, data)
    return WORDS


async def _looked_at(page):
    """Give what axe finds at each width in each colours; empty lists are left out."""
    found = {}
    for width in (320, 400, 820, 1400):
        for colours, query in COLOURS.items():
            await page.look(width=width, has_reduced_motion=True, **dict.fromkeys(colours, True))
            # The browser answers before the page is that wide.
            await page.until(f"innerWidth === {width} && matchMedia('{query}').matches")
            await page.wait_for_frame()
            if told := await page.value(RUN):
                found[width, *colours] = told
            assert await page.value("document.documentElement.scrollWidth") == width
    return found


@pytest.mark.slow
async def test_nothing_keeps_people_out_at_any_width_or_in_any_colours(serving_fake, browsing):
    async with serving_fake({"show": _show}) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        # Of the policy of pages that code made.
        page.expected.append("'webrtc'")
        await page.value(AXE)
        assert await page.value(RUN) == []
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        # They are typeset one after the other.
        maths = "document.querySelectorAll('#turns .math math').length"
        await page.until(f"document.querySelectorAll('#turns .math').length === 2 && {maths} === 2")
        spoken = "document.getElementById('spoken').textContent"
        await page.until(f"{spoken}.startsWith('Answer: Words') && {spoken}.includes('bold')")
        folded = await page.value(RUN)
        await page.click(".work summary")
        found = await _looked_at(page) | {"folded": folded}
        await page.look(width=1400, has_reduced_motion=True)
        for menu in ("python-state", "share", "more"):
            await page.click(f"#{menu}")
            await page.until(f"document.querySelector('#{menu}[aria-expanded=true]')")
            found[menu] = await page.value(RUN)
            await page.press("Escape")
        await page.click("#files")
        await page.until("document.querySelectorAll('#pane .file').length === 3")
        found["files"] = await page.value(RUN)
        await page.click("[data-enlarged]")
        await page.until("document.getElementById('gallery-picture')?.clientWidth")
        found["gallery"] = await page.value(RUN)
        shown = await page.text("#gallery header")
        assert "Sales" in shown
        assert "1 of 2" in shown
        save = "document.getElementById('gallery-save').href"
        assert "title=Sales" in await page.value(save)
        before = await page.value("document.getElementById('gallery-picture').clientWidth")
        await page.click("[aria-label=Larger]")
        assert await page.value("document.getElementById('gallery-picture').clientWidth") > before
        await page.click("[aria-label='Next picture']")
        assert "name=b.png" in await page.value(save)
        await page.press("Escape")
        assert {where: told for where, told in found.items() if told} == {}


async def test_nothing_keeps_people_out_of_a_visit(serving_fake, browsing):
    served = settings.Web(listen="127.0.0.1:0", public_url="https://bot.example.org")
    async with serving_fake({"show": _show}, web=served) as (bot, client), browsing() as browser:
        person, reply = requests.Person("U1", "Ada"), replies.Reply()
        request = requests.Request(key=OURS, person=person, text="show", id="1" * 16)
        await bot.handle(request, reply)
        link = await bot.visits.link(OURS)
        page = await browser.page()
        page.expected.append("'webrtc'")
        await page.go(link.replace("https://bot.example.org", client.origin))
        await page.until("document.querySelectorAll('#turns .math math').length === 2")
        await page.value(AXE)
        assert await _looked_at(page) == {}
        await page.click("#more")
        await page.until("document.querySelector('#actions:popover-open')")
        assert await page.value(RUN) == []
        # Its secret has been used.
        again = await browser.page()
        again.expected.append("/visit")
        await again.go(link.replace("https://bot.example.org", client.origin))
        await again.until("document.getElementById('title').textContent === 'Not opened'")
        await again.value(AXE)
        assert await _looked_at(again) == {}


async def test_text_in_colours_of_ours_can_be_read_on_each_ground(serving_fake, browsing):
    streams = [values.Text(stream, GROUNDS) for stream in ("stdout", "stderr")]
    async with serving_fake(visits.make_script(*streams)) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        drawn = "document.querySelectorAll('.printed span[class]').length"
        assert await page.value(drawn) > 1000
        for colours, query in list(COLOURS.items())[:2]:
            await page.look(width=1400, has_reduced_motion=True, **dict.fromkeys(colours, True))
            await page.until(f"matchMedia('{query}').matches")
            await page.wait_for_frame()
            assert await page.value(CONTRAST) >= 4.5, query
