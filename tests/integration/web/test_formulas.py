"""Formulas and Markdown that code shows, as the page draws them."""

import hashlib
import importlib.resources
import json

import pytest

from interpreter_bot import values
from interpreter_bot.platforms import web
from tests.integration.web import visits

PUBLISHED = "1ab19148afe0dbc836b7a74f344071b3f3a70a7a8259ae4049e76894fcdf8d95"
DRAWN = """(async text => {
  const {MarkdownView} = await import('/markdown.js');
  const words = new MarkdownView();
  document.getElementById('turns').replaceChildren(words.element);
  words.text = text;
  words.draw();
  return words.element.textContent;
})(%s)"""
SETTLED = (
    "[...document.querySelectorAll('.math')].every(e => e.querySelector('math') ||"
    " e.classList.contains('raw'))"
)
# Of the page itself and of all that it fetched, unpacked.
WEIGHT = """["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
  .reduce((sum, one) => sum + one.decodedBodySize, 0)"""
MATHS = "[...document.querySelectorAll('math')].length"

TYPESET = {
    r"The root is \(\frac{-b \pm \sqrt{b^2-4ac}}{2a}\).": 1,
    r"Energy $E = mc^2$, and \[\int_0^\infty e^{-x^2}\,dx\]": 2,
    "$$\na + b\n- c\n= d\n$$": 1,
    "\\[\n\\sum_{i=1}^n i\n\\]\n\nThen $n$ and $5$.": 3,
    "\\begin{align}\na &= b \\\\\nc &= d\n\\end{align}": 1,
    "- item $x_1$\n- item \\(x_2\\)": 2,
    "| a |\n|---|\n| $\\alpha$ |": 1,
    "**$x$** and [$y$](https://example.org)": 2,
}
SAME = (
    "It costs $5 and then $6, or US$5 and US$6.",
    "From $3,000 to 4$ or so.",
    r"An open \( x and \[ y and a \, b.",
    "Set `$HOME` and `$PATH`.",
    "$ x $",
    r"\(\def\a{\a\a}\a\)",
    r"\(\nosuchcommand{x}\)",
    r"\(\href{javascript:alert(1)}{x}\)",
    r"\(\includegraphics{https://example.org/spy.png}\)",
    r"\(\class{turn}{x}\)",
    r"\(" + r"\sqrt{" * 90 + "x" + "}" * 90 + r"\)",
    r"\(\text{<img src=x onerror=alert(1)>}",
)
HEAVY = (
    "$" * 100_000,
    "$a" * 50_000,
    "$x$ " * 25_000,
    r"\(" * 50_000,
    r"\(" * 40_000 + r"\)",
    "\\[\n" * 30_000,
    "$$\n" * 30_000 + "x",
    "\n".join(f"$x_{{{number}}}^2$" for number in range(3000)),
    r"\[\begin{matrix}" + "&" * 1900 + r"\end{matrix}\]",
)


def test_temml_is_what_its_package_has():
    """The digest is that of dist/temml.min.js in the package temml 0.13.5 of the npm registry."""
    kept = importlib.resources.files(web).joinpath("pages/temml.js").read_bytes()
    published = kept.partition(b"*/\n")[2].removesuffix(b"\nexport default temml;\n")
    assert hashlib.sha256(published).hexdigest() == PUBLISHED


async def test_the_page_is_light_before_the_first_formula(serving_fake, browsing):
    words = "Some `code` and **words**.\n\n| a |\n|---|\n| 1 |"
    script = visits.make_script("\x1b[31mprinted\x1b[0m", text=words)
    async with serving_fake(script) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        weight = await page.value(WEIGHT)
        assert 50_000 < weight <= 270_000, weight


@pytest.mark.gate
async def test_formulas_of_an_answer_are_typeset(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        assert not [one for one in page.requests if "temml" in one]
        counts = {}
        for text in TYPESET:
            await page.value(DRAWN % json.dumps(text))
            await page.until(SETTLED)
            counts[text] = await page.value(MATHS)
        assert counts == TYPESET
        assert len([one for one in page.requests if one.endswith("/temml.js")]) == 1


async def test_what_is_no_formula_stands_as_it_was_written(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for text in SAME:
            await page.value(DRAWN % json.dumps(text))
            await page.until(SETTLED)
            assert await page.text(".words") == text.replace("`", "")
            assert await page.value(MATHS) == 0
        assert await page.value("document.querySelectorAll('.words :is(img, script)').length") == 0


@pytest.mark.gate
async def test_no_formula_leaves_its_place(serving_fake, browsing):
    tex = r"\(a\kern{-1000em}b\rule{900em}{900em}\) and \(\raisebox{900em}{x}\hspace{-500em}y\)"
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client, width=600)
        await page.value(DRAWN % json.dumps(tex))
        await page.until(SETTLED)
        assert await page.value(MATHS) == 2
        widths = "[document.documentElement.scrollWidth, innerWidth]"
        assert await page.value(widths) == [600, 600]
        clipped = "[...document.querySelectorAll('.math')].map(e => getComputedStyle(e).overflow)"
        assert await page.value(clipped) == ["clip", "clip"]


async def test_formulas_keep_nobody_waiting(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await page.value(DRAWN % json.dumps("$x$"))
        await page.until(SETTLED)

        for text in HEAVY:
            await page.value(
                "(async text => { const {MarkdownView} = await import('/markdown.js');"
                f" words = new MarkdownView(); words.text = text; }})({json.dumps(text)})"
            )
            # For so long the page answers to nothing.
            longest = 0
            for step in "words.draw()", *["new Promise(go => setTimeout(go))"] * 20:
                before = await page.processor_seconds()
                await page.value(step)
                longest = max(longest, await page.processor_seconds() - before)
            assert longest <= 2, text[:20]


async def test_what_code_shows_as_markdown_or_latex_is_drawn(serving_fake, browsing):
    integral = r"$\displaystyle \int\limits_{0}^{\infty} e^{- x^{2}}\, dx$"
    outputs = (
        values.Result(plain="# Title\n\n**bold** and $x^2$", is_markdown=True),
        values.Latex(latex=integral, plain="Integral(exp(-x**2), (x, 0, oo))"),
        values.Latex(latex=r"The area is $\pi r^2$."),
        values.Result(plain="**plain**"),
    )
    async with serving_fake(visits.make_script(*outputs)) as (_, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        await visits.send_message(page, "show")
        await visits.wait_for_turns(page)
        for _ in range(2):
            await page.until(f"{SETTLED} && {MATHS} === 3")
            assert await page.text(".output.markdown strong") == "bold"
            assert await page.text(".output.markdown :is(h3, h4)") == "Title"
            assert "The area is" in await page.text(".output.latex")
            assert "Integral(" not in await page.text(".outputs")
            assert await page.text(".output.result") == "**plain**"
            await page.reload()
            await visits.wait_for_turns(page)
