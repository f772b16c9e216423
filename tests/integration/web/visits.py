"""What the tests of the page do alike: open it, say something, wait for the answer."""

import struct
import zlib

from interpreter_bot import values

ENDED = "document.querySelectorAll('.turn:not([aria-busy])').length"
FIELD = "document.getElementById('message')"


async def opened(browser, client, **look):
    """Open the page, and wait for its first screen."""
    page = await browser.page(**look)
    await page.go(str(client.address))
    await page.until("!document.getElementById('welcome').hidden")
    return page


async def say(page, text):
    """Write something and send it."""
    await page.value(f"{FIELD}.focus()")
    await page.type(text)
    await page.press("Enter")


async def answered(page, count=1):
    """Wait until so many turns are over, and drawn."""
    await page.until(f"{ENDED} === {count}")
    await page.wait_for_frame()


async def choose(page, button, words):
    """Open a menu of the bar, and choose an entry by its words."""
    entries = "[...document.querySelectorAll('#actions button')]"
    await page.click(f"#{button}")
    await page.until("document.querySelector('#actions:popover-open')")
    entry = f"{entries}.find(e => e.querySelector('span').innerText === '{words}')"
    await page.value(f"{entry}.click()")


async def tabbed(page, limit=60):
    """Press Tab until the focus comes round; gives what it was on, as CSS would name it."""
    named = (
        "(e => e === document.body ? '' : e.id ? '#' + e.id : '.' + e.className)"
        "(document.activeElement)"
    )
    seen = []
    for _ in range(limit):
        await page.press("Tab")
        seen.append(await page.value(named))
    return seen


def playing(*outputs, text="Done.", artifacts=()):
    """Give a script in which "show" shows outputs, makes files, and says a text."""

    async def play(turn):
        turn.reply.step(1)
        await turn.run(0, "show()", *outputs)
        turn.reply.step(2)
        turn.reply.text(text)
        for name, data in artifacts:
            (turn.directory / name).write_bytes(data)
            turn.reply.artifact(0, values.Artifact(name, len(data), "0" * 64))
        return text

    return {"show": play}


def png(width=3, height=2):
    """Make a picture."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + b"\x20\x80\x60" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
