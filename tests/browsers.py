"""A real browser, headless Chromium as installed on the machine, driven by its DevTools protocol.

    async with browsing() as browser:
        page = await browser.page(width=400)
        await page.go(address)
        await page.until("document.title == 'x'")
        assert await page.value("document.body.innerText") == …

`browsing` is a fixture. All tests share one process, because its start takes longer than most
tests; each test has a profile of its own. If Debian's headless shell is installed, it is used: the
same engine at a quarter of the processor time. It lacks some protections of a full browser against
pages, so `browsing_as_people` opens a full one. An exception of the page, or an error on its
console, fails the test at the end of the `async with`, unless it contains one of `page.expected`.
"""

import asyncio
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
_HEADLESS_SHELL = "chromium-headless-shell"
_FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    # Without this flag, each profile keeps a spare process.
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
_MAX_WAIT_SECONDS = 60.0
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
# The middle of an element, once that is the same in two frames: content above may still move it.
_SETTLED_MIDDLE = """async selector => {
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


def find_chromium(*, is_peoples=True):
    """Return the path of an installed browser, or None; the headless shell is not for people."""
    names = _NAMES if is_peoples else (_HEADLESS_SHELL, *_NAMES)
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

    def handle_event(self, method, parameters):
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
        """Load the page again; returns when the old document is gone."""
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

    async def until(self, expression, *, seconds=_MAX_WAIT_SECONDS):
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

    async def processor_seconds(self):
        """Return for how long the page has computed: however busy the machine is, the same."""
        await self.call("Performance.enable")
        metrics = (await self.call("Performance.getMetrics"))["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime")

    async def wait_for_frame(self):
        """Wait until the page has drawn its next frame."""
        await self.value("new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")

    async def text(self, selector):
        elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return await self.value(f"{elements}.map(e => e.innerText).join('\\n')")

    async def click(self, selector):
        """Click in the middle of an element, as a mouse does."""
        point = await self.until(f"({_SETTLED_MIDDLE})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=point[0],
                y=point[1],
                button="left",
                clickCount=1,
            )

    async def type(self, text):
        await self.call("Input.insertText", text=text)

    async def press(self, key, *, modifiers=0):
        """Press a key: 2 is Ctrl, 8 is Shift."""
        code, text = _KEYS[key]
        description = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": code,
            "modifiers": modifiers,
        }
        kind = "keyDown" if text else "rawKeyDown"
        await self.call("Input.dispatchKeyEvent", type=kind, text=text, **description)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **description)

    async def dialog(self):
        """Wait for a dialog of the page or the browser; returns its type."""
        async with asyncio.timeout(_MAX_WAIT_SECONDS):
            return await self._dialogs.get()

    async def choose_files(self, selector, *paths):
        """Choose files, as with the file dialog."""
        # By its object id: asking for a node id would make the browser report all DOM changes.
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
        has_forced_colors=False,
        has_reduced_motion=False,
    ):
        """Set the width, the colour scheme and other preferences of the person.

        With reduced motion there are no transitions, during which colours are mixed.
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
            {"name": "forced-colors", "value": "active" if has_forced_colors else "none"},
            {"name": "prefers-reduced-motion", "value": "reduce" if has_reduced_motion else ""},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def close(self):
        await self._browser.call("Target.closeTarget", targetId=self._target)


class BrowserError(Exception):
    """The browser refused a command."""


class Chromium:
    """The browser's process, started by the first `address()`, and again if it has died."""

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
        """Return the address of the DevTools websocket."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._start()
        return self._address

    def _start(self):
        profile = pathlib.Path(tempfile.mkdtemp(dir=self._directory.name))
        flags = [*_FLAGS, f"--user-data-dir={profile}"]
        # Chromium's own sandbox needs namespaces, and a user who is not root.
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
            # Its child processes may have outlived it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Browser:
    """A profile in the shared process, deleted at the end."""

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
                listener = asyncio.create_task(browser._listen())
                try:
                    await browser._begin()
                    yield browser
                    await browser.call("Target.disposeBrowserContext", **browser._profile)
                finally:
                    listener.cancel()
                    await asyncio.wait({listener})
            browser.check()

    async def _begin(self):
        # If the test fails, the profile ends with the connection.
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

    async def wait_for_download(self, *, seconds=60):
        """Wait until a download is complete; returns its path."""
        async with asyncio.timeout(seconds):
            while True:
                files = list(self.downloads.iterdir())
                if files and not any(file.suffix == ".crdownload" for file in files):
                    return files[0]
                await asyncio.sleep(0.05)

    def check(self):
        """Raise AssertionError with the unexpected faults of pages."""
        for page in self._pages.values():
            faults = [f for f in page.faults if not any(known in f for known in page.expected)]
            if faults:
                raise AssertionError("\n".join(faults))

    async def _listen(self):
        async for message in self._socket:
            reply = json.loads(message.data)
            if "id" in reply:
                answer = self._answers.pop(reply["id"])
                if answer.done():
                    continue
                if "error" in reply:
                    answer.set_exception(BrowserError(reply["error"]["message"]))
                else:
                    answer.set_result(reply["result"])
            elif (page := self._pages.get(reply.get("sessionId"))) is not None:
                page.handle_event(reply["method"], reply["params"])
