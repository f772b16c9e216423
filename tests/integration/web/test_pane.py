"""The files beside the conversation, with the kernel that reads them, in a real browser."""

import io
import json
import zipfile

import pytest

from interpreter_bot import values
from tests.integration.web import test_accessibility, visits

CODE = """
import pandas
open('notes.md', 'w').write('# Notes\\n<script>alert(1)</script>')
frame = pandas.DataFrame({'n': range(1000), 'word': ['<b>x</b>'] * 1000})
frame.to_csv('sales.csv', index=False)
frame.to_parquet('sales.parquet')
with pandas.ExcelWriter('book.xlsx') as book:
    frame.to_excel(book, sheet_name='first', index=False)
    frame.head(3).to_excel(book, sheet_name='<i>second</i>'.replace('/', ''), index=False)
import json
sources = ['open("x", "w").close(); print(40 + 2)', '1 / 0', 'print("never")']
cells = [{'cell_type': 'code', 'metadata': {}, 'outputs': [{}], 'source': one} for one in sources]
words = {'cell_type': 'markdown', 'metadata': {}, 'source': '# Words'}
notebook = {'cells': [words, *cells], 'metadata': {}, 'nbformat': 4, 'nbformat_minor': 4}
json.dump(notebook, open('n.ipynb', 'w'))
del frame
"""
TITLES = "[...document.querySelectorAll('#pane .file-title')].map(e => e.innerText).sort().join()"
STATUS = "document.querySelector('#pane .table-bar [role=status]')?.innerText"
THREAD = "0123456789abcdef"
PREVIEW = """(async (name) => {
  const { preview } = await import("/previews.js");
  const shown = preview({ name, size_bytes: 9 }, { thread: "%s", sendAction() {} });
  document.getElementById("turns").replaceChildren(shown);
  const words = () => shown.querySelector("pre")?.textContent;
  while (words() === undefined) await new Promise((go) => setTimeout(go, 10));
  return words();
})("%s")"""


async def view(page, name):
    """Open a file from the list of all."""
    entries = "[...document.querySelectorAll('#pane .file > button')]"
    entry = f"{entries}.find(e => e.innerText.startsWith('{name}'))"
    await page.until(f"!{entry}?.click() && !{entry}")


async def press(page, words):
    buttons = "[...document.querySelectorAll('#pane button')]"
    await page.value(f"{buttons}.find(e => e.innerText === '{words}').click()")


async def test_json_is_indented_unless_it_is_nested_to_be_too_much(serving_fake, browsing):
    deep = "[" * 2000 + ",".join("0" * 50_000) + "]" * 2000
    wide = "[" * 40 + ",".join("0" * 50_000) + "]" * 40
    written = {"plain": '{"a": ["]]", 1]}', "deep": deep, "wide": wide, "none": "{[" * 60}
    async with serving_fake() as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for name, text in written.items():
            key = values.SessionKey("web", thread=THREAD)
            (bot.directory(key) / f"{name}.json").write_text(text)
            shown = await page.value(PREVIEW % (THREAD, f"{name}.json"))
            lines = json.dumps(json.loads(text), indent=2) if name == "plain" else text
            assert shown == lines, name


async def test_what_is_no_notebook_is_said_to_be_none(serving_fake, browsing):
    async with serving_fake() as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        directory = bot.directory(values.SessionKey("web", thread=THREAD))
        shown = """(async () => {
          const { preview } = await import("/previews.js");
          const shown = preview({ name: "n.ipynb", size_bytes: 9 }, { thread: "%s" });
          while (!shown.querySelector("button")) await new Promise((go) => setTimeout(go, 10));
          return shown.querySelector("span").textContent;
        })()"""
        for content in ("{[", "5", '{"cells": [null]}'):
            (directory / "n.ipynb").write_text(content)
            assert await page.value(shown % THREAD) == "This is not a notebook."


async def test_a_text_is_shown_by_its_encoding_or_it_is_said_that_it_is_another(
    serving_fake, browsing
):
    texts = {
        "utf16": "Zoë\n".encode("utf-16"),
        "bom": "\ufeffZoë".encode(),
        "sjis": "日本".encode("cp932"),
    }
    shown = {}
    async with serving_fake() as (bot, client), browsing() as browser:
        page = await visits.open_page(browser, client)
        for name, data in texts.items():
            (bot.directory(values.SessionKey("web", thread=THREAD)) / f"{name}.txt").write_bytes(
                data
            )
            words = await page.value(PREVIEW % (THREAD, f"{name}.txt"))
            notice = "document.querySelector('#turns .notice')?.innerText ?? ''"
            shown[name] = (words.strip(), "not in UTF-8" in await page.value(notice))
    assert shown.pop("sjis")[1]
    assert shown == {"utf16": ("Zoë", False), "bom": ("Zoë", False)}


@pytest.mark.gate
@pytest.mark.kernel
async def test_files_are_looked_into_renamed_deleted_and_taken_along(serving_kernels, browsing):
    async with serving_kernels() as (_, address), browsing() as browser:
        page = await browser.page(width=1400)
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")
        await page.value("document.getElementById('message').focus()")
        await page.type(CODE)
        await page.press("Enter", modifiers=2)
        await visits.wait_for_turns(page)
        assert not [one for one in page.requests if "/pane." in one or "/panels." in one]
        await page.click("#files")
        await page.until(f"{TITLES} === 'book.xlsx,n.ipynb,notes.md,sales.csv,sales.parquet'")
        for name in ("sales.csv", "sales.parquet", "book.xlsx"):
            await view(page, name)
            await page.until(f"{STATUS}?.startsWith('1,000 rows')")
            await page.until("document.querySelector('#pane .grid').innerText.includes('<b>x</b>')")
            if name != "book.xlsx":
                await press(page, "All files")
        await page.value(
            "(e => { e.selectedIndex = 1; e.dispatchEvent(new Event('change')) })"
            "(document.querySelector('.sheets select'))"
        )
        await page.until(f"{STATUS}?.startsWith('3 rows')")
        await press(page, "All files")
        await view(page, "notes.md")
        await page.until("document.querySelector('#pane .words h3')?.innerText === 'Notes'")
        assert await page.value("document.querySelectorAll('#pane script').length") == 0
        await press(page, "Rename")
        await page.until("document.querySelector('dialog[open] input')")
        await page.value("document.querySelector('dialog[open] input').value = '../kept.md'")
        await page.value("document.querySelector('dialog[open] [value=yes]').click()")
        await page.until(f"{TITLES} === 'book.xlsx,kept.md,n.ipynb,sales.csv,sales.parquet'")
        await view(page, "book.xlsx")
        # Else Python may be asked to read what is gone already.
        await page.until(f"{STATUS}?.startsWith('1,000 rows')")
        await press(page, "Delete")
        await page.until("document.querySelector('dialog[open]')")
        await page.value("document.querySelector('dialog[open] [value=yes]').click()")
        await page.until(f"{TITLES} === 'kept.md,n.ipynb,sales.csv,sales.parquet'")
        await press(page, "Download all")
        packed = zipfile.ZipFile(io.BytesIO((await browser.wait_for_download()).read_bytes()))
        assert sorted(packed.namelist()) == ["kept.md", "n.ipynb", "sales.csv", "sales.parquet"]
        assert packed.read("kept.md").startswith(b"# Notes")
        await view(page, "n.ipynb")
        await page.until("document.querySelector('#pane .words h3')?.innerText === 'Words'")
        before = await page.value("location.hash")
        await press(page, "Run its cells")
        await page.until(f"location.hash !== '{before}'")
        told = "document.querySelector('.between')?.innerText"
        await page.until(f"{told} === '1 of 3 cells was not run.'")
        shown = await page.text("#turns")
        assert "42" in shown
        assert "ZeroDivisionError" in shown
        assert "never" not in shown
        await page.until(f"{TITLES} === 'x'")
        await page.value("document.querySelector('#pane [role=tab]').focus()")
        await page.press("Escape")
        assert await page.value("document.getElementById('pane').hidden")
        assert await page.value("document.activeElement.id") == "files"


@pytest.mark.kernel
async def test_variables_and_columns_follow_what_is_run(serving_kernels, browsing):
    """As they are after each run, on the tab that is chosen, by keys as well."""
    async with serving_kernels() as (_, address), browsing() as browser:
        page = await browser.page(width=1400)
        await page.go(address)
        await page.until("!document.getElementById('welcome').hidden")

        async def run(code, count):
            fields = "[...document.querySelectorAll('#message, #code')]"
            await page.click(f"#{await page.value(f'{fields}.find(e => e.checkVisibility()).id')}")
            await page.type(code)
            await page.press("Enter", modifiers=2)
            await visits.wait_for_turns(page, count=count)

        await visits.choose(page, "python-state", "Variables")
        listed = "document.querySelector('#pane .variables').innerText"
        await page.until("document.getElementById('pane').innerText.includes('No variables yet')")
        await run("price = '<b>41</b>'", 1)
        await page.until(f"{listed}.includes('<b>41</b>')")
        await run("price = 42; import pandas", 2)
        await page.until(f"{listed}.includes('42')")
        await page.value(test_accessibility.AXE)
        assert await page.value(test_accessibility.RUN) == []
        await page.value("document.getElementById('tab-variables').focus()")
        await page.press("ArrowRight")
        assert await page.value("document.activeElement.ariaSelected") == "true"
        schema = "document.getElementById('pane-body').innerText"
        await page.until(f"{schema}.includes('No tables are loaded')")
        await run("t = pandas.DataFrame({f'c{n}': [n / 2] for n in range(45)}, index=['<i>'])", 3)
        await page.until("document.querySelectorAll('#pane .columns tbody tr').length === 46")
        rows = "[...document.querySelectorAll('#pane .columns tbody tr')].map(e => e.innerText)"
        told = await page.value(rows)
        assert told[0].split("\t") == ["index", "str", "<i>"]
        assert told[45].split("\t") == ["c44", "float64", "22"]
        assert await page.value(test_accessibility.RUN) == []
        await run("del t", 4)
        await page.until(f"{schema}.includes('No tables are loaded')")
        # What is on its way when the pane is closed does not open it again.
        await page.value("document.querySelector('#pane [aria-label^=Close]').click()")
        await run("price = 43", 5)
        assert await page.value("document.getElementById('pane').hidden")
