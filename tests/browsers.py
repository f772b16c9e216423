"""A real browser, driven over its own protocol: headless Chromium from the machine.

    async with browsing() as browser:
        page = await browser.page(width=400)
        await page.go(address)
        await page.until("document.title == 'x'")
        assert await page.value("document.body.innerText") == …

`browsing` is a fixture. All tests share one process, because its start takes longer than most of
them; each has a profile of its own in it. Where there is one, it is Debian's headless shell: the
same engine at a quarter of the processor time. It knows less of what keeps a page of code from the
network, so `browsing_as_people` is the browser that people have. Nothing but aiohttp is needed. An
exception of the page's own, or an error on its console, fails the test at the end of the `async
with`, unless one of `page.expected` is in it.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import aiohttp

from tests import machine

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_SHELL = "chromium-headless-shell"
_FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    # Else it keeps a process for a page that nobody opens, in every profile.
    "--disable-features=SpareRendererForSitePerProcess",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--mute-audio",
    "--password-store=basic",
)
_SECONDS = 60.0
_KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "End": (35, ""),
    "a": (65, ""),
    "z": (90, ""),
}
# Once it stays where it is from one frame to the next: what is drawn above it moves it.
_MIDDLE = """async selector => {
  for (let last = "";;) {
    const element = document.querySelector(selector);
    if (!element) return null;
    element.scrollIntoView({block: "nearest"});
    const box = element.getBoundingClientRect();
    const middle = [box.x + box.width / 2, box.y + box.height / 2];
    if (!box.width || last === `${middle}`) return box.width && middle;
    last = `${middle}`;
    await new Promise((go) => requestAnimationFrame(() => setTimeout(go)));
  }
}"""


def found(*, is_peoples=True):
    """Return the path of a browser, of a kind that people have if so wanted; or None."""
    names = _NAMES if is_peoples else (_SHELL, *_NAMES)
    return next(filter(None, map(shutil.which, names)), None)


class Page:
    """A tab."""

    def __init__(self, browser, session, target):
        self._browser = browser
        self._session = session
        self._target = target
        self.faults = []
        self.expected = []
        self.requests = []
        self._dialogs = asyncio.Queue()

    async def call(self, method, **parameters):
        return await self._browser.call(method, session=self._session, **parameters)

    def heard(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.faults.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self._dialogs.put_nowait(parameters["type"])

    async def go(self, address):
        await self.call("Page.navigate", url=address)
        await self.until("document.readyState == 'complete'")

    async def reload(self):
        """Load the page anew; what was there before is gone when this returns."""
        await self.value("isOld = true")
        await self.call("Page.reload")
        await self.until("!('isOld' in window) && document.readyState == 'complete'")

    async def value(self, expression):
        """The value of a JavaScript expression, awaited."""
        result = await self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    async def until(self, expression, *, seconds=_SECONDS):
        """Wait until an expression is true; returns its value."""
        last = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        last = await self.value(expression)
                        # An element comes as {}.
                        if last not in (None, False, 0, ""):
                            return last
                    except (AssertionError, BrowserError) as error:
                        last = error
                    await asyncio.sleep(0.02)
        text = await self.value("document.body.innerText")
        raise AssertionError(f"never true: {expression} ({last})\n{text}\n{self.faults}")

    async def drawn(self):
        """Wait until what the page has to draw is drawn, which is with the next frame."""
        await self.value("new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")

    async def text(self, selector):
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return await self.value(f"{found}.map(e => e.innerText).join('\\n')")

    async def click(self, selector):
        """Click in the middle of an element, as a mouse does."""
        place = await self.until(f"({_MIDDLE})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    async def type(self, text):
        await self.call("Input.insertText", text=text)

    async def press(self, key, *, modifiers=0):
        """Press a key: 2 is Ctrl, 8 is Shift."""
        code, text = _KEYS[key]
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        kind = "keyDown" if text else "rawKeyDown"
        await self.call("Input.dispatchKeyEvent", type=kind, text=text, **about)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    async def dialog(self):
        """Wait until the page, or the browser about it, asks something; returns which kind."""
        async with asyncio.timeout(_SECONDS):
            return await self._dialogs.get()

    async def choose_files(self, selector, *paths):
        """Choose files, as with the file dialog."""
        # By its object, not by its node: who asks for a document hears of all its changes.
        element = await self.call(
            "Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})"
        )
        await self.call(
            "DOM.setFileInputFiles",
            files=list(map(str, paths)),
            objectId=element["result"]["objectId"],
        )

    async def drop_files(self, x, y, *paths):
        """Drag files from outside over the page, and drop them."""
        data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            await self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    async def look(
        self,
        *,
        width,
        height=900,
        is_dark=False,
        is_mobile=False,
        is_forced=False,
        is_still=False,
    ):
        """Be so wide, and light or dark, or in colours that the person has forced.

        Who wants it still has no transitions: what is in the middle of one has colours of neither.
        """
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_mobile,
        )
        scheme = "dark" if is_dark else "light"
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "forced-colors", "value": "active" if is_forced else "none"},
            {"name": "prefers-reduced-motion", "value": "reduce" if is_still else ""},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path):
        shot = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(pathlib.Path(path).write_bytes, base64.b64decode(shot["data"]))

    async def close(self):
        await self._browser.call("Target.closeTarget", targetId=self._target)


class BrowserError(Exception):
    """The browser refused a command."""


class Chromium:
    """The process, started when it is first wanted, and again should it have died."""

    def __init__(self, path):
        self._path = path
        self._process = None
        self._directory = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()
        self._directory.cleanup()

    def address(self):
        """Where it is spoken to."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._start()
        return self._address

    def _start(self):
        profile = pathlib.Path(tempfile.mkdtemp(dir=self._directory.name))
        flags = [*_FLAGS, f"--user-data-dir={profile}"]
        # Its own is made of namespaces.
        if os.geteuid() == 0 or not machine.offers_namespaces():
            flags.append("--no-sandbox")
        self._process = subprocess.Popen(
            [self._path, *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        file = profile / "DevToolsActivePort"
        for _ in range(1500):
            if file.exists() and file.read_text().count("\n") == 1:
                break
            time.sleep(0.02)
        port, path = file.read_text().split("\n")
        self._address = f"ws://127.0.0.1:{port}{path}"

    def _end(self):
        if self._process is not None:
            # Its other processes may have outlived the first.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Browser:
    """A profile of its own in the process, which is gone at the end."""

    def __init__(self, socket, downloads):
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers = {}
        self._pages = {}
        self._profile = None
        self.downloads = downloads

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, address):
        with tempfile.TemporaryDirectory(prefix="downloads-") as downloads:
            async with (
                aiohttp.ClientSession() as client,
                client.ws_connect(address, max_msg_size=0) as socket,
            ):
                browser = cls(socket, pathlib.Path(downloads))
                listening = asyncio.create_task(browser._listen())
                try:
                    await browser._begin()
                    yield browser
                    await browser.call("Target.disposeBrowserContext", **browser._profile)
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
            browser.check()

    async def _begin(self):
        # Gone with the connection too, should the test have failed.
        self._profile = await self.call("Target.createBrowserContext", disposeOnDetach=True)
        await self.call(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(self.downloads),
            **self._profile,
        )

    async def page(self, *, width=1280, height=900):
        target = (await self.call("Target.createTarget", url="about:blank", **self._profile))[
            "targetId"
        ]
        attached = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, attached["sessionId"], target)
        self._pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.look(width=width, height=height)
        return page

    async def call(self, method, *, session=None, **parameters):
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        await self._socket.send_str(json.dumps(message))
        async with asyncio.timeout(60):
            return await answer

    async def downloaded(self, *, seconds=60):
        """Wait for a download to be whole; returns its path."""
        async with asyncio.timeout(seconds):
            while True:
                done = list(self.downloads.iterdir())
                if done and not any(one.suffix == ".crdownload" for one in done):
                    return done[0]
                await asyncio.sleep(0.05)

    def check(self):
        """Raise what went wrong in pages."""
        for page in self._pages.values():
            faults = [f for f in page.faults if not any(known in f for known in page.expected)]
            if faults:
                raise AssertionError("\n".join(faults))

    async def _listen(self):
        async for message in self._socket:
            heard = json.loads(message.data)
            if "id" in heard:
                answer = self._answers.pop(heard["id"])
                if answer.done():
                    continue
                if "error" in heard:
                    answer.set_exception(BrowserError(heard["error"]["message"]))
                else:
                    answer.set_result(heard["result"])
            elif (page := self._pages.get(heard.get("sessionId"))) is not None:
                page.heard(heard["method"], heard["params"])
