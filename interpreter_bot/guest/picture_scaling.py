"""Pictures scaled down for a model.

A few bytes of an untrusted picture may decode to gigabytes, so each is decoded in a child process
(`bounded_children`). Metadata, such as the place of a photograph, is removed.
"""

from __future__ import annotations

import base64
import io
from typing import Any

from . import bounded_children

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_MAX_PIXELS = 64_000_000
_MAX_SECONDS = 8.0
_MODES = ("L", "LA", "RGB", "RGBA")
_JPEG_QUALITY = 85


def scale(
    sources: list[str | bytes], *, max_side: int, max_bytes: int
) -> list[tuple[str, bytes] | None]:
    """Scale pictures down.

    Args:
        sources: names of files, or their content.
        max_side: the longest side in pixels.
        max_bytes: of each.

    Returns:
        MIME type and content of each; None for a file that is not a picture, or is too large.
    """
    # Imported before the fork, because an import in the child could wait for a lock for ever.
    from PIL import Image, ImageOps, WebPImagePlugin

    Image.init()
    del ImageOps, WebPImagePlugin
    return [_scale_in_child(source, max_side, max_bytes) for source in sources]


def _scale_in_child(source: str | bytes, max_side: int, max_bytes: int) -> tuple[str, bytes] | None:
    """Scale one picture in a child process."""
    answer = bounded_children.run(
        lambda: _scale(source, max_side, max_bytes),
        seconds=_MAX_SECONDS,
        max_bytes=2 * max_bytes,
    )
    mime, _, data = answer.partition(b"\n")
    return (mime.decode("ascii", "replace"), data) if data else None


def _scale(source: str | bytes, max_side: int, max_bytes: int) -> bytes:
    """Decode, scale and encode a picture; return the MIME type, a line break, and the content."""
    from PIL import Image, ImageOps

    file = io.BytesIO(source) if isinstance(source, bytes) else source
    with Image.open(file, formats=_FORMATS) as image:
        if image.width * image.height > _MAX_PIXELS:
            return b""
        is_photograph = image.format in ("JPEG", "WEBP")
        image.draft("RGB", (max_side, max_side))
        if image.mode not in _MODES:
            has_alpha = image.mode in ("PA", "La", "RGBa") or "transparency" in image.info
            image.load()
            scaled: Any = image.convert("RGBA" if has_alpha else "RGB")
        else:
            scaled = image
        scaled.thumbnail((max_side, max_side))
        scaled = ImageOps.exif_transpose(scaled)
        pixels = Image.frombytes(scaled.mode, scaled.size, scaled.tobytes())
    if not is_photograph:
        data = _encode(pixels, "PNG")
        if len(data) <= max_bytes:
            return b"image/png\n" + data
    while True:
        data = _encode(_flatten(pixels), "JPEG", quality=_JPEG_QUALITY)
        if len(data) <= max_bytes:
            return b"image/jpeg\n" + data
        # Noisy pictures need fewer pixels; a lower quality saves little.
        pixels = pixels.resize((max(pixels.width // 2, 1), max(pixels.height // 2, 1)))


def _flatten(image: Any) -> Any:
    """Put a transparent picture on white."""
    from PIL import Image

    if image.mode not in ("LA", "RGBA"):
        return image
    background = Image.new("RGBA", image.size, "white")
    background.alpha_composite(image.convert("RGBA"))
    return background.convert("RGB")


def _encode(image: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def publish(shell: Any, names: list[str], contents: list[str], **bounds: int) -> None:
    """Scale pictures, and display each with its number as its text."""
    sources: list[str | bytes] = [*names, *map(base64.b64decode, contents)]
    for number, picture in enumerate(scale(sources, **bounds)):
        if picture is not None:
            mime, data = picture
            form = {mime: base64.b64encode(data).decode("ascii"), "text/plain": str(number)}
            shell.display_pub.publish(data=form, metadata={})
