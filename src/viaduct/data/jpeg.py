"""Decoding of images as by TensorFlow's `decode_jpeg`, through libjpeg-turbo (simplejpeg).

    decode(data)                            uint8 HxWx3; TensorFlow's defaults: fast integer DCT, fancy upsampling
    decode(data, dct="accurate")            the DCT that Pillow uses: mean 1, at most 12 grey levels from the fast one
    decode(data, fancy_upsampling=False)    chroma repeated rather than interpolated
    decode(data, shrink=2)                  half the size (also 4, 8) out of the DCT itself
    decode(data, buffer=memory)             into your own array, if it is large enough and the image is an RGB JPEG
    dimensions(data)                        (height, width) from the header, 1 microsecond

Unusual images are treated as in TensorFlow: grey becomes RGB, CMYK and YCCK are converted (`multiply_inks`), a PNG that
calls itself JPEG is decoded (see png.py), EXIF rotation is ignored, damage that libjpeg only warns of is tolerated, and
a file that is cut short is an error. GIF, BMP, WebP and TIFF are named and refused (of these TensorFlow's `decode_jpeg`
takes GIF); so is a chroma subsampling that TurboJPEG has no name for. Data that cannot be decoded raise `BadData`.

simplejpeg was chosen over PyTurboJPEG (needs a system library), imagecodecs (26 MB; for Python 3.10 only an old
release) and turbojpeg (cannot scale, no wheel for ARM). None of the four decodes regions: region.py does.
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

MOST_BYTES = png.MOST_BYTES
# A block of 8x8 pixels takes two bits of a JPEG at least, one if it is progressive: 512 grey pixels a byte. A header
# that claims more is damaged, or made to take memory. Images below the second limit may claim what they like.
PIXELS_A_BYTE, SMALL_PIXELS = 600, 1 << 24
REFUSED = {b"GIF8": "a GIF", b"BM": "a BMP", b"RIFF": "a WebP", b"II*\0": "a TIFF", b"MM\0*": "a TIFF"}
# What libjpeg says about damage that it, and hence TensorFlow, decodes around (jerror.h, JWRN_*).
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
    """Decode to height x width x 3.

    A PNG cannot be shrunk: it has its full size, so use the shape of the result.
    """
    if dct not in ("fast", "accurate"):
        raise BadValue(f"dct must be 'fast' or 'accurate', got {dct!r}.")
    if shrink not in (1, 2, 4, 8):
        raise BadValue(f"shrink must be 1, 2, 4 or 8, got {shrink!r}.")
    if png.is_png(data):
        return png.decode(bytes(data))
    height, width, colours = read_header(data)
    has_inks = colours in ("CMYK", "YCCK")
    if has_inks or (buffer is not None and buffer.size < height * width * 3):
        buffer = None
    # The binding looks for the smallest size that is not below these: exactly a half, quarter or eighth, rounded up.
    least = {"min_height": -(-height // shrink), "min_width": -(-width // shrink)} if shrink > 1 else {}
    pixels: Pixels = tolerate_warnings(
        binding().decode_jpeg,
        data,
        colorspace="CMYK" if has_inks else "RGB",
        fastdct=dct == "fast",
        fastupsample=not fancy_upsampling,
        buffer=buffer,
        **least,
    )
    return multiply_inks(pixels, inverted=has_adobe_marker(bytes(data))) if has_inks else pixels


def dimensions(data: Encoded) -> tuple[int, int]:
    """Return height and width from the header."""
    if png.is_png(data):
        return png.dimensions(bytes(data[:33]))
    return read_header(data)[:2]


def is_jpeg(data: Encoded) -> bool:
    return data[:3] == b"\xff\xd8\xff"


def read_header(data: Encoded) -> tuple[int, int, str]:
    """Return height, width and colour space of a JPEG; refuse other data, and sizes above the limits."""
    if not is_jpeg(data):
        raise BadData(f"not a JPEG or PNG: {describe_format(data)}.")
    height, width, colours, _ = tolerate_warnings(binding().decode_jpeg_header, data)
    if height * width * 3 > MOST_BYTES:
        raise TooLarge(f"the JPEG has {width:,} x {height:,} pixels; at most {MOST_BYTES // 3:,} are decoded.")
    if height * width > max(SMALL_PIXELS, PIXELS_A_BYTE * len(data)):
        raise TooLarge(
            f"the JPEG claims {width:,} x {height:,} pixels, but has {len(data):,} bytes; beyond {SMALL_PIXELS:,} "
            f"pixels, at most {PIXELS_A_BYTE} a byte are decoded."
        )
    return height, width, colours


def describe_format(data: Encoded) -> str:
    """Say what the data are, if no JPEG."""
    if len(data) == 0:
        return "it is empty"
    for magic, name in REFUSED.items():
        if data[: len(magic)] == magic:
            return f"it is {name}"
    return f"it begins with {bytes(data[:8])!r}"


def tolerate_warnings(call: Any, data: Encoded, **options: Any) -> Any:
    """Call the binding; if its complaint is one that TensorFlow accepts, call it again without strictness.

    All other complaints raise `BadData`.
    """
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
    """Return True if an end marker follows the last scan. (libjpeg names its first complaint only, perhaps another.)"""
    return data.rfind(b"\xff\xd9") > data.rfind(b"\xff\xda")


def multiply_inks(inks: Pixels, *, inverted: bool) -> Pixels:
    """Convert CMYK to RGB as TensorFlow does: the light that an ink leaves, times the light that black leaves.

    `inverted` images, which Adobe's programs write, store light in place of ink.
    """
    light = inks.astype(np.uint16) if inverted else 255 - inks.astype(np.uint16)
    return (light[..., :3] * light[..., 3:] // 255).astype(np.uint8)


def has_adobe_marker(data: bytes) -> bool:
    """Return True if there is an APP14 segment before the pixels."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF and data[position + 1] != 0xDA:
        if data[position + 1] == 0xEE and data[position + 4 : position + 9] == b"Adobe":
            return True
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return False


def binding() -> ModuleType:
    """Import simplejpeg, or explain why it cannot be."""
    try:
        import simplejpeg
    except ImportError as error:
        raise explain_import_error(error) or ViaductError(
            f"images are decoded with simplejpeg, which is installed but cannot be imported: {error}.",
            "Try: pip install --force-reinstall simplejpeg",
        ) from None
    module: ModuleType = simplejpeg
    return module
