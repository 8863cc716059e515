"""Decoding of images as TensorFlow's `decode_jpeg` does it, with libjpeg-turbo (simplejpeg).

    decode(data)                            uint8 HxWx3; TensorFlow's defaults: fast integer DCT, fancy upsampling
    decode(data, dct="accurate")            Pillow's DCT; differs by about 1 grey level, in single pixels by up to 18
    decode(data, fancy_upsampling=False)    chroma repeated instead of interpolated
    decode(data, shrink=2)                  half the size (also 4, 8), computed by the DCT
    decode(data, buffer=memory)             into this array, if it is large enough and the JPEG is grey or RGB
    read_dimensions(data)                   (height, width) from the header

The differences between the two DCTs were measured with photographs of qualities 75 and 95.

Unusual images are treated as in TensorFlow: grey becomes RGB, inks (CMYK and YCCK) are converted, a PNG named JPEG is
decoded (see png.py), EXIF rotation is ignored, damage that causes one of the warnings in TOLERATED is tolerated, and a
truncated file is an error. GIF, which TensorFlow decodes, BMP, WebP and TIFF are refused, and so is a chroma
subsampling that TurboJPEG does not support. Data that cannot be decoded raise `BadData`, images above the size limits
`TooLarge`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from viaduct.data import png
from viaduct.errors import BadData, BadValue, TooLarge, ViaductError
from viaduct.extras import explain_import_error

Pixels = npt.NDArray[np.uint8]
Encoded = bytes | bytearray | memoryview
Dct = Literal["fast", "accurate"]
Shrink = Literal[1, 2, 4, 8]

MAX_BYTES = png.MAX_BYTES
# A header may claim at most 600 pixels for each byte of the file, or 2**24 pixels if that is more. A block of 8x8
# pixels takes at least one bit, so a complete file has at most 512 pixels a byte.
PIXELS_A_BYTE, SMALL_PIXELS = 600, 1 << 24
REFUSED = {b"GIF8": "a GIF", b"BM": "a BMP", b"RIFF": "a WebP", b"II*\0": "a TIFF", b"MM\0*": "a TIFF"}
# Warnings of libjpeg (jerror.h, JWRN_*) after which it, and TensorFlow, continue.
TOLERATED = (
    "Corrupt JPEG data",
    "Inconsistent progression sequence",
    "Invalid SOS parameters",
    "Unknown Adobe color transform",
    "Warning: unknown JFIF revision",
)


def decode(
    data: Encoded, dct: Dct = "fast", fancy_upsampling: bool = True, shrink: Shrink = 1, buffer: Pixels | None = None
) -> Pixels:
    """Decode to height x width x 3; of a PNG all arguments except `data` are ignored."""
    if dct not in ("fast", "accurate"):
        raise BadValue(f"dct must be 'fast' or 'accurate', got {dct!r}.")
    if shrink not in (1, 2, 4, 8):
        raise BadValue(f"shrink must be 1, 2, 4 or 8, got {shrink!r}.")
    if png.is_png(data):
        return png.decode(bytes(data))
    height, width, colour_space = read_header(data)
    has_inks = colour_space in ("CMYK", "YCCK")  # decoded to four channels, which are not those of the buffer
    if has_inks or (buffer is not None and buffer.size < height * width * 3):
        buffer = None
    # simplejpeg takes the smallest scaled size that is not below this one: a half, quarter or eighth, rounded up.
    least = {"min_height": -(-height // shrink), "min_width": -(-width // shrink)} if shrink > 1 else {}
    pixels: Pixels = tolerate_warnings(
        import_simplejpeg().decode_jpeg,
        data,
        colorspace="CMYK" if has_inks else "RGB",
        fastdct=dct == "fast",
        fastupsample=not fancy_upsampling,
        buffer=buffer,
        **least,
    )
    return multiply_inks(pixels, inverted=has_adobe_marker(bytes(data))) if has_inks else pixels


def read_dimensions(data: Encoded) -> tuple[int, int]:
    """Return height and width from the header."""
    if png.is_png(data):
        return png.read_dimensions(bytes(data[:33]))
    return read_header(data)[:2]


def is_jpeg(data: Encoded) -> bool:
    return data[:3] == b"\xff\xd8\xff"


def read_header(data: Encoded) -> tuple[int, int, str]:
    """Return height, width and colour space of a JPEG; raise `BadData` for other data, and sizes above the limits."""
    if not is_jpeg(data):
        raise BadData(f"not a JPEG or PNG: {describe_format(data)}.")
    height, width, colour_space, _ = tolerate_warnings(import_simplejpeg().decode_jpeg_header, data)
    if height * width * 3 > MAX_BYTES:
        raise TooLarge(f"the JPEG has {width:,} x {height:,} pixels; at most {MAX_BYTES // 3:,} are decoded.")
    if height * width > max(SMALL_PIXELS, PIXELS_A_BYTE * len(data)):
        raise TooLarge(
            f"the JPEG claims {width:,} x {height:,} pixels, but has {len(data):,} bytes; beyond {SMALL_PIXELS:,} "
            f"pixels, at most {PIXELS_A_BYTE} a byte are decoded."
        )
    return height, width, colour_space


def describe_format(data: Encoded) -> str:
    """Describe data that are neither JPEG nor PNG."""
    if len(data) == 0:
        return "it is empty"
    for magic, name in REFUSED.items():
        if data[: len(magic)] == magic and (magic != b"RIFF" or b"WEBP".startswith(bytes(data[8:12]))):
            return f"it is {name}"
    return f"it begins with {bytes(data[:8])!r}"


def tolerate_warnings(call: Any, data: Encoded, **options: Any) -> Any:
    """Call a function of simplejpeg; tolerate the warnings that TensorFlow tolerates, raise `BadData` for others."""
    try:
        return call(data, **options)
    except ValueError as error:
        reason = str(error)
    if not reason.startswith(TOLERATED):
        raise BadData(f"the JPEG cannot be decoded: {reason} ({len(data)} bytes).")
    if not has_end_marker(bytes(data)):
        raise BadData(f"the JPEG is cut short: {reason} ({len(data)} bytes).")
    try:
        return call(data, strict=False, **options)
    except (ValueError, KeyError) as error:
        raise BadData(f"the JPEG cannot be decoded: {error} ({len(data)} bytes).") from None


def has_end_marker(data: bytes) -> bool:
    """Return True if an end marker (EOI) follows the begin of the last scan (SOS)."""
    return data.rfind(b"\xff\xd9") > data.rfind(b"\xff\xda")


def multiply_inks(inks: Pixels, *, inverted: bool) -> Pixels:
    """Convert CMYK to RGB as TensorFlow does; `inverted` images, as Adobe's programs write them, store 255 - ink."""
    light = inks.astype(np.uint16) if inverted else 255 - inks.astype(np.uint16)
    return (light[..., :3] * light[..., 3:] // 255).astype(np.uint8)


def has_adobe_marker(data: bytes) -> bool:
    """Return True if there is an Adobe segment (APP14) before the pixels."""
    position, start_of_scan, app14 = 2, 0xDA, 0xEE
    while position + 4 <= len(data) and data[position] == 0xFF and data[position + 1] != start_of_scan:
        if data[position + 1] == app14 and data[position + 4 : position + 9] == b"Adobe":
            return True
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return False


def import_simplejpeg() -> ModuleType:
    """Import simplejpeg, or explain the failure."""
    try:
        import simplejpeg
    except ImportError as error:
        raise explain_import_error(error) or ViaductError(
            f"images are decoded with simplejpeg, which is installed but cannot be imported: {error}.",
            "Try: pip install --force-reinstall simplejpeg",
        ) from None
    module: ModuleType = simplejpeg
    return module
