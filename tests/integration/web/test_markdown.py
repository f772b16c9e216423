"""Words as the page draws them, in a real browser."""

import json

import pytest

DRAWN = """(async text => {
  const {MarkdownView} = await import('/markdown.js');
  const words = new MarkdownView();
  words.text = text;
  words.draw();
  return words.element.%s;
})(%s)"""


async def _drawn(page, text, what="innerHTML"):
    return await page.value(DRAWN % (what, json.dumps(text)))


@pytest.fixture
def drawing(serving_fake, browsing):
    """Open the page, and give what draws."""

    async def drawing(*texts):
        async with serving_fake() as (_, client), browsing() as browser:
            page = await browser.page()
            await page.go(str(client.address))
            return [await _drawn(page, text) for text in texts]

    return drawing


CASES = {
    "plain": "<p>plain</p>",
    "a\nb": "<p>a<br>b</p>",
    "**b** *i* ~~s~~": "<p><strong>b</strong> <em>i</em> <del>s</del></p>",
    "***both***": "<p><em><strong>both</strong></em></p>",
    "snake_case_name and 2*3*4": "<p>snake_case_name and 2<em>3</em>4</p>",
    "\\*no\\*": "<p>*no*</p>",
    "# One\n## Two ##": "<h3>One</h3><h4>Two</h4>",
    "- a\n- b\n  - c": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "- [ ] do": (
        '<ul><li class="task"><input type="checkbox" disabled="" aria-label="To do">do</li></ul>'
    ),
    "> a\n> b": "<blockquote><p>a<br>b</p></blockquote>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "1 < 2 & 3 > 2": "<p>1 &lt; 2 &amp; 3 &gt; 2</p>",
    "``a`b``": '<p><code dir="ltr">a`b</code></p>',
    "[a.csv](sandbox:/mnt/data/a.csv)": '<p><code dir="ltr">a.csv</code></p>',
    "![The plot](/mnt/data/out/p (1).png)": (
        '<p><span>The plot (<code dir="ltr">out/p (1).png</code>)</span></p>'
    ),
    "See sandbox:/mnt/data/a%20b.csv.": '<p>See <code dir="ltr">a b.csv</code>.</p>',
    "unclosed **bold and `code": "<p>unclosed **bold and `code</p>",
}


@pytest.mark.gate
async def test_markdown_is_drawn(drawing):
    drawn = await drawing(*CASES)
    assert dict(zip(CASES, drawn, strict=True)) == CASES


async def test_tables_and_code_are_drawn(drawing):
    table, code, open_code = await drawing(
        "| a | b |\n|:--|--:|\n| 1 | `x\\|y` |\n| 2 |",
        "```python\nx = '<b>'  # c\n```",
        "```\nstill being written",
    )
    assert '<th class="end">b</th>' in table
    assert '<code dir="ltr">x|y</code>' in table
    assert table.count("<tr>") == 3
    assert '<span class="language">Python</span>' in code
    assert "<span class=\"py-string\">'&lt;b&gt;'</span>" in code
    assert "still being written" in open_code


@pytest.mark.gate
async def test_only_addresses_of_the_web_and_of_mail_become_links(drawing):
    bad = (
        *("javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "data:text/html,x"),
        *("java\tscript:alert(1)", "vbscript:x", "file:///etc/passwd", "blob:x", "//evil.example"),
        *("/download?thread=x", "sandbox:/mnt/data/x", "about:blank", "http:", "\x01javascript:x"),
    )
    drawn = await drawing(
        *(f"[x]({one})" for one in bad),
        *(f"<{one}>" for one in bad),
        *(f"![x]({one})" for one in bad),
        "[x](https://example.org/a_(b)?q=1 'title') https://example.org/x. <mailto:a@example.org>",
        "![alt](https://example.org/spy.png)",
    )
    assert [one for one in drawn[:-2] if "<a " in one or "<img" in one] == []
    assert drawn[-2].count("<a ") == 3
    assert 'href="https://example.org/a_(b)?q=1"' in drawn[-2]
    assert 'href="https://example.org/x"' in drawn[-2]
    assert 'rel="noopener noreferrer nofollow"' in drawn[-2]
    # A picture from elsewhere would tell its host that somebody looks.
    assert "<img" not in drawn[-1]


@pytest.mark.gate
async def test_html_is_text(drawing):
    texts = (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "**<b onmouseover=alert(1)>**",
        "`<script>`",
        "```html\n<script>alert(1)</script>\n```",
        "# <svg onload=alert(1)>",
        "| <i> |\n|---|\n| <iframe src=javascript:alert(1)> |",
        "[<img src=x onerror=alert(1)>](https://example.org)",
        '```"><script>\nx\n```',
    )
    for drawn in await drawing(*texts):
        for tag in ("<script", "<img", "<b ", "<iframe", "<svg onload", "<i>"):
            assert tag not in drawn


LONG = (
    "*a" * 50_000,
    "*a* " * 25_000,
    "[" * 100_000,
    "[a](" * 25_000,
    "`" * 99_999,
    "".join("`" * (n % 300 + 1) + "a" for n in range(600)),
    "> " * 50_000 + "a",
    "- " * 50_000,
    "\n".join("  " * n + "- a" for n in range(400)),
    "|" * 50_000 + "\n" + "|-" * 25_000,
    "\\" * 100_000,
    "https://" + "a(" * 40_000,
    "#" * 100_000,
    "# " + " #" * 50_000,
    "- " * 3 + "-" * 90_000 + "x",
    "~" * 100_000 + "\n",
    "a\n" * 100_000,
    "_a" * 50_000,
    "<" * 100_000,
    '[a](x "' + '"' * 90_000,
    "[a](sandbox:" + "(a)" * 30_000,
    "sandbox:/" * 10_000,
    "![" * 50_000,
    "[" * 15_000 + "x" + "](sandbox:a)" * 15_000,
    "https://a.b " * 9000,
    "- a" + "\n\n  b" * 20_000,
    "> #\na\n" * 15_000,
    ("|a" * 250 + "|\n" + "|-" * 250 + "|\n" + "|\n" * 260) * 60,
    "![" * 95 + "*a " * 30_000 + "](x)" * 95,
)


async def test_no_text_keeps_the_page_busy(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await browser.page()
        await page.go(str(client.address))
        await _drawn(page, "warm *up*")
        slow = {}
        for text in LONG:
            await page.value(
                "(async text => { const m = await import('/markdown.js');"
                f" words = new m.MarkdownView(); words.text = text; }})({json.dumps(text)})"
            )
            before = await page.processor_seconds()
            await page.value("words.draw()")
            seconds = await page.processor_seconds() - before
            if seconds > 2:
                slow[text[:20]] = seconds
        assert slow == {}


async def test_costly_text_is_drawn_as_it_was_written(drawing):
    quotes = "> #\na\n" * 15_000
    images = "![" * 95 + "*a " * 30_000 + "](x)" * 95
    code, paragraph = await drawing(quotes, images)
    assert code.startswith('<div class="code">')
    assert code.count("&gt; #\na") == 15_000
    assert paragraph == f"<p>{images}</p>"


async def test_nesting_is_drawn_to_a_limit(drawing):
    """A browser would take minutes to lay out what is nested a thousand times."""
    (drawn,) = await drawing("*a " * 1000 + "b" + " a*" * 1000)
    assert drawn.count("<em>") == 100
    assert drawn.count("a") == 2000


async def test_words_that_grow_are_not_drawn_anew(serving_fake, browsing):
    async with serving_fake() as (_, client), browsing() as browser:
        page = await browser.page()
        await page.go(str(client.address))
        kept = await page.value(
            "(async () => { const {MarkdownView} = await import('/markdown.js');"
            " const w = new MarkdownView();"
            " w.text = '# A\\n\\nfirst\\n\\nsec'; w.draw(); const before = [...w.element.children];"
            " w.text += 'ond\\n\\n- x'; w.draw(); const after = [...w.element.children];"
            " return [before[0] === after[0], before[1] === after[1], after.length,"
            " w.element.innerText.includes('second')]; })()"
        )
        assert kept == [True, True, 4, True]
        # Each look at how tall the page is lays it out; a long one would stand still for it.
        changes, looks = await page.value(
            "(async () => { const {Turn} = await import('/turns.js');"
            " const {Conversation} = await import('/conversation.js'); let looks = 0;"
            " const around = {displays: new Map(), sendAction() {}, announce() {}};"
            " const turn = new Turn({id: 'x', request: 'x', files: [], started: 0}, around);"
            " const shown = {find: () => turn, onChange() {}, scrollToLatest: () => looks++};"
            " const tell = (event) => Conversation.prototype.applyEvent.call(shown, 'x', event);"
            " document.getElementById('turns').append(turn.element);"
            " tell({type: 'text', text: 'a '}); const seen = new MutationObserver(() => {});"
            " seen.observe(turn.state, {attributes: true, childList: true, subtree: true});"
            " tell({type: 'text', text: 'b '}); return [seen.takeRecords().length, looks]; })()"
        )
        assert (changes, looks) == (0, 0)
