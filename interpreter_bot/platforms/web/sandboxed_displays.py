"""Pictures and pages that code made; they may be hostile, so each is shown in its own sandbox.

A page runs its scripts in an opaque origin without network: it has no cookie of ours, and cannot
reach this server, the page around it, or any host. It is always shown in a frame of our own page,
whose policy also keeps it from navigating, so it cannot be opened by itself.

WebRTC reaches any host, and no policy that all browsers support covers it. Chromium obeys an empty
list of allowed connections, in the page and all frames in it. Other browsers get a directive that
none obeys yet, and a script that runs before all others and removes the constructors of WebRTC. A
page can still take these from a frame that it creates.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import re
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms import http_files
from interpreter_bot.platforms.web import access, files, tab_hub, validation
from interpreter_bot.sessions import session_service
from interpreter_bot.wording import page_words

_FRAME_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none';"
    " script-src 'unsafe-inline' 'unsafe-eval' data: blob:;"
    " style-src 'unsafe-inline' data: blob:; img-src data: blob:; font-src data:;"
    " media-src data: blob:; worker-src blob:; connect-src data: blob:; webrtc 'block';"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
_FRAME_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Connection-Allowlist": "();webrtc=block",
}
_SCRIPTLESS_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline' data:; img-src data:; font-src data:;"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
_PICTURE_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:;"
    " frame-ancestors 'none'"
)
_MAX_TITLE_CHARACTERS: Final = 400
_MAX_PAGE_BYTES: Final = 64 * 1024 * 1024
_SHA256_PATTERN: Final = re.compile(r"[0-9a-f]{64}")
_MIME_BY_SUFFIX: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
}
_PAGE_START_PATTERN: Final = re.compile(
    rb"(?:\s|<!--.*?-->)*+<(!doctype|html)\b", re.IGNORECASE | re.DOTALL
)
_DOCTYPE: Final = b"<!doctype html>"
_FRAGMENT_HEAD: Final = b"""<!doctype html><meta charset="utf-8">
<style>body{margin:8px;background:#fff;color:#111;font:14px/1.5 system-ui,sans-serif}
table{border-collapse:collapse}th,td{padding:3px 8px;text-align:right}</style>
"""
_GUARD_SCRIPT: Final = b"""<script>
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection"])
Object.defineProperty(window, name, {value: undefined, writable: false, configurable: false});
</script>"""
_DARK_SCRIPT: Final = b"<script>%b</script>" % (
    importlib.resources.files(__package__).joinpath("pages/dark_charts.js").read_bytes()
)
# Reports the height of the page, including margins outside its body and a scroll bar below it. The
# receiver accepts it within limits. A page that makes itself taller than its frame would grow for
# ever, so it gets a height that suits a chart, and is not measured again.
_HEIGHT_SCRIPT: Final = b"""
<script>(() => {
  let last = null, observer = null;
  const report = () => {
    const root = document.documentElement, body = document.body, frameHeight = innerHeight;
    const top = body.getBoundingClientRect().top + scrollY;
    const content = Math.max(root.getBoundingClientRect().height, top + body.scrollHeight + 8);
    const scrollBar = root.scrollWidth > root.clientWidth ? frameHeight - root.clientHeight : 0;
    const height = Math.ceil(content + Math.min(scrollBar, 20));
    const growth = last && frameHeight - last.frameHeight;
    const followsFrame = growth && Math.abs(height - last.height - growth) < 2;
    if (followsFrame) { observer.disconnect(); removeEventListener("load", report); }
    last = {height, frameHeight};
    parent.postMessage({height: followsFrame ? 466 : height}, "*");
  };
  observer = new ResizeObserver(report);
  observer.observe(document.body);
  addEventListener("load", report);
})()</script>
"""


class Displays:
    """Routes of displays."""

    def __init__(
        self, service: session_service.SessionService, hub: tab_hub.Hub, *, has_scripts: bool
    ) -> None:
        self._service = service
        self._hub = hub
        self._has_scripts = has_scripts

    async def send_picture(self, request: web.Request) -> web.StreamResponse:
        """Serve a picture that code showed, or that is a file."""
        suffix = request.query.get("suffix") or request.query.get("name", "").rpartition(".")[2]
        mime = _MIME_BY_SUFFIX.get(suffix.lower())
        if mime is None:
            raise errors.FileNameError(page_words.NOT_A_PICTURE)
        headers = {"Content-Type": mime, "Content-Security-Policy": _PICTURE_POLICY}
        async with self._open(request) as (info, pieces):
            return await http_files.stream_file(request, info, pieces, headers=headers)

    async def send_page(self, request: web.Request) -> web.StreamResponse:
        """Serve a page for a frame of our own page."""
        if request.headers.get("Sec-Fetch-Dest", "iframe") != "iframe":
            raise web.HTTPSeeOther(f"/view?{request.query_string}")
        async with self._open(request) as (info, pieces):
            if info.size_bytes > _MAX_PAGE_BYTES:
                raise errors.FileTooLargeError(page_words.PAGE_TOO_LARGE)
            data = b"".join([piece async for piece in pieces])[:_MAX_PAGE_BYTES]
        scripts = _GUARD_SCRIPT + (_DARK_SCRIPT if request.query.get("theme") == "dark" else b"")
        policy, body = _FRAME_POLICY, _insert_head(data, scripts) + _HEIGHT_SCRIPT
        if not self._has_scripts:
            policy, body = (
                _SCRIPTLESS_POLICY,
                data if _PAGE_START_PATTERN.match(data[:4096]) else _FRAGMENT_HEAD + data,
            )
        headers = _FRAME_HEADERS | {"Content-Security-Policy": policy}
        return web.Response(body=body, headers=headers)

    async def send_download(self, request: web.Request) -> web.StreamResponse:
        """Serve a picture or a page that code showed, as a download."""
        suffix = request.query.get("suffix", "")
        title = validation.read_text(
            dict(request.query), "title", max_characters=_MAX_TITLE_CHARACTERS
        )
        title = title.replace("/", " ").replace("\\", " ").strip() or "output"
        name = f"{title}.{suffix if suffix in _MIME_BY_SUFFIX else 'html'}"
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": http_files.content_disposition(name),
        }
        async with self._open(request) as (info, pieces):
            return await http_files.stream_file(request, info, pieces, headers=headers)

    @contextlib.asynccontextmanager
    async def _open(
        self, request: web.Request
    ) -> AsyncIterator[tuple[values.FileInfo, AsyncIterator[bytes]]]:
        """Open what a request names: a display by its hash, or a file of a session.

        Raises:
            BotError: there is none.
        """
        sha256 = request.query.get("sha256")
        if sha256 is None:
            async with files.open_file(self._service, request) as opened_file:
                yield opened_file
            return
        data, visit = None, request.get(access.VISIT_KEY)
        is_shown = visit is None or await self._service.visits.shows(visit.key, sha256)
        if is_shown and _SHA256_PATTERN.fullmatch(sha256):
            data = self._hub.load_blob(sha256)
            data = await self._service.queries.load_blob(sha256) if data is None else data
        if data is None:
            raise errors.FileMissingError(page_words.FILE_DELETED)
        yield values.FileInfo(sha256, len(data), 0), _single_piece(data)


def _insert_head(page: bytes, scripts: bytes) -> bytes:
    """Insert our scripts before the page, but after its doctype, which has to come first."""
    match = _PAGE_START_PATTERN.match(page[:4096])
    if match is None:
        return _FRAGMENT_HEAD + scripts + page
    return (_DOCTYPE if match[1].startswith(b"!") else b"") + scripts + page


async def _single_piece(data: bytes) -> AsyncIterator[bytes]:
    yield data
