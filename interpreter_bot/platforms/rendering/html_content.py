"""Recognizes the content of HTML: only text, a sound, a video, or a whole page. Pure.

Nothing here makes HTML safe to show; platforms show it in a frame without rights.
"""

from __future__ import annotations

import base64
import html
import html.parser
import re
from typing import Final

_MAX_TEXT_BYTES: Final = 8000
# Only the beginning of a page is searched, as a search of a whole hostile page could take minutes.
_HEAD_BYTES: Final = 4096
_TITLE: Final = re.compile(r"<title>([^<]{1,200})</title>", re.I)
_NON_TEXT_TAGS: Final = re.compile(
    r"<(?:script|svg|canvas|iframe|object|embed|img|video|audio|table|style|form|math)\b", re.I
)
_MEDIA: Final = re.compile(
    rb"""<(?:audio|video|source)\b[^>]{0,500}?\bsrc\s*=\s*(["'])"""
    rb"""data:((?:audio|video)/[\w.+-]{1,40})(?:;[\w=.+-]{1,80}){0,3};base64,""",
    re.I,
)
_SUFFIX_BY_MIME: Final = {
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/x-wav": ".wav",
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "audio/x-flac": ".flac",
    "video/mp4": ".mp4",
    "video/x-m4v": ".m4v",
    "video/webm": ".webm",
    "video/ogg": ".ogv",
    "video/quicktime": ".mov",
}
_BLOCK_TAGS: Final = frozenset(
    {"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "pre", "hr", "ul"}
)
# Default representations of Python objects.
_DEFAULT_REPR: Final = re.compile(r"\s*(?:<[^<>\n]*>|Figure\(.*\)|Figure\(\{.*)\s*", re.S)


def is_meaningful(plain: str) -> bool:
    """Return whether a display's plain text tells people anything, unlike `<… object at …>`."""
    return bool(plain.strip()) and _DEFAULT_REPR.fullmatch(plain) is None


def find_title(source: bytes) -> str:
    """Return the title of a page; empty if it has none."""
    match = _TITLE.search(source[:_HEAD_BYTES].decode("utf-8", "replace"))
    return html.unescape(match[1]).strip() if match else ""


def extract_media(source: bytes) -> tuple[str, str, bytes] | None:
    """Extract the sound or video of an HTML player.

    Returns:
        Its MIME type, suffix and bytes; None for anything else.
    """
    match = _MEDIA.search(source, 0, _HEAD_BYTES)
    mime = match[2].decode().lower() if match else ""
    if match is None or mime not in _SUFFIX_BY_MIME:
        return None
    end = source.find(match[1], match.end())
    if end < 0:
        return None
    data = source[match.end() : end]
    try:
        data = base64.b64decode(data.translate(None, b" \t\r\n"), validate=True)
        return mime, _SUFFIX_BY_MIME[mime], data
    except ValueError:
        return None


def extract_text(source: bytes) -> str | None:
    """Return the text of HTML that has no other content; None if it has."""
    text = source.decode("utf-8", "replace") if len(source) <= _MAX_TEXT_BYTES else ""
    if not text or _NON_TEXT_TAGS.search(text):
        return None
    collector = _TextCollector()
    collector.feed(text)
    collector.close()
    lines = (" ".join(line.split()) for line in "".join(collector.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _TextCollector(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a new line if a browser would."""
        if tag in _BLOCK_TAGS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.parts.append(data)
