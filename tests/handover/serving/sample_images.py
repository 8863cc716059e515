"""Images of every kind that a server decodes."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from PIL import Image

from .conftest import draw, encode


def deep_png(pixels: np.ndarray) -> bytes:  # type: ignore[type-arg]
    """Return a PNG of 16 bits a channel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + (row.astype(">u2") * 257).tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def animated_gif() -> bytes:
    frames = [Image.fromarray(draw(40, 40, seed)).quantize(64) for seed in range(3)]
    return encode(frames[0], "GIF", save_all=True, append_images=frames[1:])


IMAGE = encode(draw())
IMAGES = {
    "JPEG": encode(draw(90, 120), "JPEG"),
    "CMYK JPEG": encode(Image.fromarray(draw(60, 40)).convert("CMYK"), "JPEG"),
    "grey JPEG": encode(Image.fromarray(draw(60, 40)).convert("L"), "JPEG"),
    "progressive JPEG": encode(draw(60, 40), "JPEG", progressive=True),
    "16-bit PNG": deep_png(draw(40, 40)),
    "PNG with transparency": encode(Image.fromarray(draw(40, 40)).convert("RGBA")),
    "palette PNG": encode(Image.fromarray(draw(40, 40)).quantize(16)),
    "animated GIF": animated_gif(),
    "BMP": encode(draw(40, 40), "BMP"),
    "WebP": encode(draw(40, 40), "WEBP"),
    "TIFF": encode(draw(40, 40), "TIFF"),
    "1x1": encode(draw(1, 1)),
    "1 x 3000": encode(draw(1, 3000)),
}
