"""Steps that tests of the page share: open it, send a message, wait for the answer."""

import struct
import zlib

from interpreter_bot import values

ENDED = "document.querySelectorAll('.turn:not([aria-busy])').length"
FIELD = "document.getElementById('message')"


async def open_page(browser, client, **look):
    """Open the page, and wait for its first screen."""
    page = await browser.page(**look)
    await page.go(str(client.address))
    await page.until("!document.getElementById('welcome').hidden")
    return page


async def send_message(page, text):
    """Type a message and send it."""
    await page.value(f"{FIELD}.focus()")
    await page.type(text)
    await page.press("Enter")


async def wait_for_turns(page, count=1):
    """Wait until `count` turns have ended, and are drawn."""
    await page.until(f"{ENDED} === {count}")
    await page.wait_for_frame()


async def choose(page, button, words):
    """Open a menu of the bar, and choose an entry by its words."""
    entries = "[...document.querySelectorAll('#actions button')]"
    await page.click(f"#{button}")
    await page.until("document.querySelector('#actions:popover-open')")
    entry = f"{entries}.find(e => e.querySelector('span').innerText === '{words}')"
    await page.value(f"{entry}.click()")


def make_script(*outputs, text="Done.", artifacts=()):
    """Make a script in which "show" shows outputs, makes files, and answers a text."""

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
    """Return a PNG picture."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + b"\x20\x80\x60" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
