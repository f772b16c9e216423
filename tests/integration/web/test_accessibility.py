"""What axe-core says of the page, in a conversation with every kind of output."""

import importlib.resources

from interpreter_bot import values
from tests.integration.web import visits

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
    ("is_forced",): "(forced-colors: active)",
}
LONG = "long " * 200
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


async def test_nothing_keeps_people_out_at_any_width_or_in_any_colours(serving_fake, browsing):
    async with serving_fake({"show": _show}) as (_, client), browsing() as browser:
        page = await visits.opened(browser, client)
        # Of the policy of pages that code made.
        page.expected.append("'webrtc'")
        await page.value(AXE)
        assert await page.value(RUN) == []
        await visits.say(page, "show")
        await visits.answered(page)
        # They are typeset one after the other.
        maths = "document.querySelectorAll('#turns .math math').length"
        await page.until(f"document.querySelectorAll('#turns .math').length === 2 && {maths} === 2")
        spoken = "document.getElementById('spoken').textContent"
        await page.until(f"{spoken}.startsWith('Answer: Words') && {spoken}.includes('bold')")
        found = {}
        for width in (320, 400, 820, 1400):
            for colours, query in COLOURS.items():
                await page.look(width=width, is_still=True, **dict.fromkeys(colours, True))
                # The browser answers before the page is that wide.
                await page.until(f"innerWidth === {width} && matchMedia('{query}').matches")
                await page.drawn()
                found[width, *colours] = await page.value(RUN)
                assert await page.value("document.documentElement.scrollWidth") == width
        await page.look(width=1400, is_still=True)
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
