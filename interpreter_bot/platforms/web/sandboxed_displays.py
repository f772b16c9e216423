"""Pictures and pages that code made; as they are hostile, each is shown in a sandbox of its own.

A page runs its scripts in an opaque origin without network: it has no cookie of ours, and cannot
reach us, the page around it, or any host. It is always in a frame of a page of ours, whose policy
also keeps it from navigating, so it cannot be opened by itself.

No policy that all browsers support governs WebRTC, which reaches any host. Chromium obeys a list of
allowed connections, which is empty, in the page and all frames in it. For other browsers there is
a directive that none obeys yet, and a first script that removes the constructors. That is no
protection against a page that takes them from a frame of its own.
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
_STILL_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline' data:; img-src data:; font-src data:;"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
_PICTURE_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:;"
    " frame-ancestors 'none'"
)
_MAX_TITLE_CHARACTERS: Final = 400
_MAX_PAGE_BYTES: Final = 64 * 1024 * 1024
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MIMES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
}
_WHOLE_PAGE: Final = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(!doctype|html)\b", re.IGNORECASE | re.DOTALL
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
# Reports the height of the page, with margins outside of its body and a scroll bar below it. The
# receiver accepts it within limits. A page that is always a little taller than its frame would grow
# without end: it gets a height that suits a chart, and is not measured again.
_HEIGHT_SCRIPT: Final = b"""
<script>(() => {
  let told = null, observer = null;
  const say = () => {
    const root = document.documentElement, body = document.body, inner = innerHeight;
    const top = body.getBoundingClientRect().top + scrollY;
    const tall = Math.max(root.getBoundingClientRect().height, top + body.scrollHeight + 8);
    const bar = root.scrollWidth > root.clientWidth ? inner - root.clientHeight : 0;
    const wanted = Math.ceil(tall + Math.min(bar, 20));
    const grew = told && inner - told.inner;
    const follows = grew && Math.abs(wanted - told.wanted - grew) < 2;
    if (follows) { observer.disconnect(); removeEventListener("load", say); }
    told = {wanted, inner};
    parent.postMessage({height: follows ? 466 : wanted}, "*");
  };
  observer = new ResizeObserver(say);
  observer.observe(document.body);
  addEventListener("load", say);
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

    async def picture(self, request: web.Request) -> web.StreamResponse:
        """Serve a picture: one that was shown, or a file."""
        suffix = request.query.get("suffix") or request.query.get("name", "").rpartition(".")[2]
        mime = _MIMES.get(suffix.lower())
        if mime is None:
            raise errors.FileNameError(page_words.NOT_A_PICTURE)
        headers = {"Content-Type": mime, "Content-Security-Policy": _PICTURE_POLICY}
        async with self._open(request) as (info, pieces):
            return await http_files.stream_file(request, info, pieces, headers=headers)

    async def frame(self, request: web.Request) -> web.StreamResponse:
        """Serve a page, for a frame of ours."""
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
                _STILL_POLICY,
                data if _WHOLE_PAGE.match(data[:4096]) else _FRAGMENT_HEAD + data,
            )
        headers = _FRAME_HEADERS | {"Content-Security-Policy": policy}
        return web.Response(body=body, headers=headers)

    async def saved(self, request: web.Request) -> web.StreamResponse:
        """Serve a picture or a page that was shown, as a download."""
        suffix = request.query.get("suffix", "")
        title = validation.text(dict(request.query), "title", max_characters=_MAX_TITLE_CHARACTERS)
        title = title.replace("/", " ").replace("\\", " ").strip() or "output"
        name = f"{title}.{suffix if suffix in _MIMES else 'html'}"
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
        """Open the display or file of a request: by its hash, or as a file of a session.

        Raises:
            BotError: it does not exist.
        """
        sha256 = request.query.get("sha256")
        if sha256 is None:
            async with files.open_file(self._service, request) as opened_file:
                yield opened_file
            return
        data, visit = None, request.get(access.VISIT)
        is_shown = visit is None or await self._service.visits.shows(visit.key, sha256)
        if is_shown and _SHA256.fullmatch(sha256):
            data = self._hub.load_blob(sha256)
            data = await self._service.queries.blob(sha256) if data is None else data
        if data is None:
            raise errors.FileMissingError(page_words.FILE_DELETED)
        yield values.FileInfo(sha256, len(data), 0), _single_piece(data)


def _insert_head(page: bytes, scripts: bytes) -> bytes:
    """Insert our scripts before the page, but after a doctype, which would not count later."""
    whole = _WHOLE_PAGE.match(page[:4096])
    if whole is None:
        return _FRAGMENT_HEAD + scripts + page
    return (_DOCTYPE if whole[1].startswith(b"!") else b"") + scripts + page


async def _single_piece(data: bytes) -> AsyncIterator[bytes]:
    yield data
