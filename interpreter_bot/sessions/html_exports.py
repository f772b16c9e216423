"""A session as one page of HTML, which can be read without scripts, network or bot.

The output of code is hostile: text is escaped, a picture is embedded as an image, and a page is
drawn in a frame that may run no script. The page's content security policy forbids everything else.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from interpreter_bot import events, values
from interpreter_bot.sessions import exports, past_turns
from interpreter_bot.text import safe_text
from interpreter_bot.wording import page_words

_POLICY: Final = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:;"
    " form-action 'none'; base-uri 'none'"
)
_STYLE: Final = """
:root { color-scheme: light dark }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem;
  font: 16px/1.6 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem }
section { margin: 0 0 2rem }
.request { padding: .6rem 1rem; border-radius: 12px; background: #8882; white-space: pre-wrap }
pre { padding: .7rem .9rem; font: .85rem/1.55 ui-monospace, monospace; white-space: pre-wrap }
.code { border: 1px solid #8886; border-radius: 8px }
.error { color: light-dark(#a8321f, #f09a88) }
table { border-collapse: collapse; font-size: .875rem }
th, td { padding: .3rem .7rem; border: 1px solid #8886; text-align: start; white-space: pre-wrap }
img { max-width: 100%; background: #fff }
iframe { width: 100%; height: 24rem; border: 1px solid #8886; background: #fff }
.note { color: #777; font-size: .875rem }
@media print {
  body { max-width: none; margin: 0; font-size: 11pt }
  img, table, .request { break-inside: avoid }
  h1, h2, h3 { break-after: avoid }
}
"""


def markdown_texts(turns: Iterable[past_turns.PastTurn]) -> Iterator[str]:
    """Iterate over all Markdown that the page of these turns shows."""
    for turn in turns:
        for event in exports.final_events(turn):
            match event:
                case events.TextAdded(text=text):
                    yield text
                case events.OutputShown(output=values.Result(is_markdown=True) as result):
                    yield result.plain


def write_page(
    title: str,
    turns: Iterable[past_turns.PastTurn],
    contents: Mapping[str, bytes],
    drawn_markdown: Mapping[str, str],
) -> bytes:
    """Write a page.

    Args:
        contents: bytes of pictures and pages, by their SHA-256; a note replaces a missing one.
        drawn_markdown: HTML of each of the `markdown_texts`.
    """
    escaped_title = html.escape(title)
    body = "\n".join(_draw_turn(turn, contents, drawn_markdown) for turn in turns)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escaped_title}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escaped_title}</h1>\n{body}</body></html>\n"
    ).encode("utf-8", "replace")


def _draw_turn(
    turn: past_turns.PastTurn, contents: Mapping[str, bytes], drawn_markdown: Mapping[str, str]
) -> str:
    lines = [f'<p class="note">{turn.record.started:%Y-%m-%d %H:%M} UTC</p>']
    if turn.record.request and not turn.is_code:
        lines.append(
            f'<h2 class="note">Asked</h2><p class="request">{html.escape(turn.record.request)}</p>'
        )
    if turn.record.attachments:
        lines.append(
            f'<p class="note">Files: {html.escape(", ".join(turn.record.attachments))}</p>'
        )
    for event in exports.final_events(turn):
        match event:
            case events.TextAdded(text=text):
                lines.append(drawn_markdown[text])
            case events.CodeStarted(code=code):
                lines.append(f'<pre class="code"><code>{html.escape(code)}</code></pre>')
            case events.OutputShown(output=output) | events.StoredDisplayShown(output=output):
                lines.append(_draw_output(output, contents, drawn_markdown))
            case events.NoticeShown(text=text):
                lines.append(f'<p class="note">{html.escape(text)}</p>')
    return f"<section>{''.join(lines)}</section>"


def _draw_output(
    output: values.Output | values.StoredDisplay,
    contents: Mapping[str, bytes],
    drawn_markdown: Mapping[str, str],
) -> str:
    match output:
        case values.Clear():
            return ""
        case values.Notice():
            return f'<p class="note">{html.escape(output.text)}</p>'
        case values.Text():
            return f"<pre>{html.escape(safe_text.clean(output.text))}</pre>"
        case values.Error():
            return f'<pre class="error">{html.escape(output.traceback)}</pre>'
        case values.Table():
            return exports.draw_table(output) + _row_count_note(output)
        case values.Result() if output.is_markdown:
            return drawn_markdown[output.plain]
        case values.StoredDisplay():
            return _draw_display(output, contents.get(output.sha256))
    return f"<pre>{html.escape(output.plain)}</pre>"


def _row_count_note(table: values.Table) -> str:
    if len(table.rows) >= table.row_count:
        return ""
    return f'<p class="note">The first {len(table.rows):,} of {table.row_count:,} rows.</p>'


def _draw_display(display: values.StoredDisplay, data: bytes | None) -> str:
    description = html.escape(display.plain)
    if data is None:
        return f'<p class="note">{page_words.PICTURE_LEFT_OUT}</p>'
    if display.mime != "text/html":
        source = f"data:{html.escape(display.mime)};base64,{base64.b64encode(data).decode()}"
        return f'<p><img alt="{description or "Picture"}" src="{source}"></p>'
    if b"<script" in data.lower():
        return f'<pre>{description}</pre><p class="note">{page_words.INTERACTIVE_OUTPUT}</p>'
    page = html.escape(data.decode("utf-8", "replace"))
    return f'<iframe sandbox title="{description or "Page"}" srcdoc="{page}"></iframe>'
