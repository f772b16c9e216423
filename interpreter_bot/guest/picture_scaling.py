"""Pictures scaled down for a model.

They come from anywhere, and a few bytes of one may decode to gigabytes: each is decoded in a
process of its own, whose memory and time are bounded, so that the kernel and its variables survive.
Metadata, such as where a picture was taken, is removed.
"""

from __future__ import annotations

import base64
import io
import os
import resource
import select
import signal
import time
import warnings
from typing import Any

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_MOST_PIXELS = 64_000_000
_MOST_SECONDS = 8.0
_MEMORY_BYTES = 500 * 1024 * 1024
_MODES = ("L", "LA", "RGB", "RGBA")
_JPEG_QUALITY = 85


def scale(
    sources: list[str | bytes], *, most_side: int, most_bytes: int
) -> list[tuple[str, bytes] | None]:
    """Scale pictures down.

    Args:
        sources: names of files, or their content.
        most_side: the longest side in pixels.
        most_bytes: of each.

    Returns:
        MIME and content of each; None where it is no picture, or one that is too much.
    """
    # Imported here, not in the child, where an import could wait for a lock for ever.
    from PIL import Image, ImageOps, WebPImagePlugin

    Image.init()
    del ImageOps, WebPImagePlugin
    return [_apart(source, most_side, most_bytes) for source in sources]


def _apart(source: str | bytes, most_side: int, most_bytes: int) -> tuple[str, bytes] | None:
    """Scale one picture in a child process."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # The warning is about threads, of which the child has and needs none.
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            _bound()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_scaled(source, most_side, most_bytes))
        finally:
            # Any error: the picture is unusable, and the parent reads nothing.
            os._exit(0)
    os.close(writing)
    try:
        answer = _read(reading, 2 * most_bytes)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    mime, _, data = answer.partition(b"\n")
    return (mime.decode("ascii", "replace"), data) if data else None


def _bound() -> None:
    """Bound the memory and time of this process from now on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_AS, used + _MEMORY_BYTES),
        (resource.RLIMIT_CPU, int(_MOST_SECONDS)),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def _read(descriptor: int, most_bytes: int) -> bytes:
    """Read until the end, a limit, or the timeout."""
    give_up = time.monotonic() + _MOST_SECONDS
    parts: list[bytes] = []
    while sum(map(len, parts)) < most_bytes:
        ready, _, _ = select.select([descriptor], [], [], max(give_up - time.monotonic(), 0))
        if not ready:
            return b""
        if not (part := os.read(descriptor, 1 << 16)):
            break
        parts.append(part)
    return b"".join(parts)


def _scaled(source: str | bytes, most_side: int, most_bytes: int) -> bytes:
    """Decode, scale and re-encode; the MIME type comes first, on a line of its own."""
    from PIL import Image, ImageOps

    warnings.simplefilter("ignore")
    opened = io.BytesIO(source) if isinstance(source, bytes) else source
    with Image.open(opened, formats=_FORMATS) as image:
        if image.width * image.height > _MOST_PIXELS:
            return b""
        is_photograph = image.format in ("JPEG", "WEBP")
        image.draft("RGB", (most_side, most_side))
        if image.mode not in _MODES:
            has_alpha = image.mode in ("PA", "La", "RGBa") or "transparency" in image.info
            image.load()
            small: Any = image.convert("RGBA" if has_alpha else "RGB")
        else:
            small = image
        small.thumbnail((most_side, most_side))
        small = ImageOps.exif_transpose(small)
        bare = Image.frombytes(small.mode, small.size, small.tobytes())
    if not is_photograph:
        data = _encoded(bare, "PNG")
        if len(data) <= most_bytes:
            return b"image/png\n" + data
    while True:
        data = _encoded(_flat(bare), "JPEG", quality=_JPEG_QUALITY)
        if len(data) <= most_bytes:
            return b"image/jpeg\n" + data
        # Noise hardly gets smaller by any other means.
        bare = bare.resize((max(bare.width // 2, 1), max(bare.height // 2, 1)))


def _flat(image: Any) -> Any:
    """Lay a transparent picture on white."""
    from PIL import Image

    if image.mode not in ("LA", "RGBA"):
        return image
    below = Image.new("RGBA", image.size, "white")
    below.alpha_composite(image.convert("RGBA"))
    return below.convert("RGB")


def _encoded(image: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def publish(shell: Any, names: list[str], contents: list[str], **bounds: int) -> None:
    """Scale pictures, and display each with its number in place of text.

    Args:
        shell: displays them.
        names: names of files.
        contents: further pictures, in base64; numbered after the files.
        bounds: see `scale`.
    """
    sources: list[str | bytes] = [*names, *map(base64.b64decode, contents)]
    for number, picture in enumerate(scale(sources, **bounds)):
        if picture is not None:
            mime, data = picture
            form = {mime: base64.b64encode(data).decode("ascii"), "text/plain": str(number)}
            shell.display_pub.publish(data=form, metadata={})
