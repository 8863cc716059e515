"""Samples of a PNG restored by Pillow from lines that png.py has decompressed.

Pillow gets a file of its own: the header, a palette and the lines, stored without compression. So all checks are those
of png.py, also that no line is missing, which Pillow would fill with black. Its samples are those of png.py in every
colour type and depth but 16 bits, which it scales otherwise; a test compares all of them.
"""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from viaduct.data.png_encoder import chunk

if TYPE_CHECKING:
    from viaduct.data.png import Header

Bytes = npt.NDArray[np.uint8]
SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 3
BLACK = b"\0\0\0"


def restore_samples(header: Header, lines: Bytes) -> Bytes | None:
    """Return colours of height x width x 3, or height x width x 1 numbers of a palette's colours.

    None where png.py does it: Pillow is not there or refuses the lines, or numpy is as fast or must be asked.
    """
    pillow = load_pillow()
    if pillow is None or header.depth == 16 or is_plain(header, lines):
        return None
    body = struct.pack(">IIBBBBB", *header)
    palette = chunk(b"PLTE", BLACK * (1 << header.depth)) if header.colour_type == PALETTE else b""
    stored = zlib.compress(lines.data, 0)
    file = b"".join((SIGNATURE, chunk(b"IHDR", body), palette, chunk(b"IDAT", stored), chunk(b"IEND", b"")))
    try:
        with pillow.PngImagePlugin.PngImageFile(io.BytesIO(file)) as image:
            if header.colour_type == PALETTE:
                return np.array(image)[..., None]
            return np.array(image if image.mode == "RGB" else image.convert("RGB"))
    except Exception:  # whatever Pillow raises, png.py says what is wrong with the file
        return None


def is_plain(header: Header, lines: Bytes) -> bool:
    """Return True if the lines are the samples themselves, no differences between neighbours."""
    return header.depth == 8 and not header.interlaced and not lines.reshape(header.height, -1)[:, 0].any()


@cache
def load_pillow() -> Any | None:
    """Return the package with what is needed of it; None where it is missing or cannot be imported."""
    try:
        import PIL.ImageFile
        import PIL.PngImagePlugin
    except Exception:  # a broken installation is as good as none
        return None
    return PIL
