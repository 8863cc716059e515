"""Decoding of images in all supported formats.

    read_size(data)        (height, width) from the header
    decode_image(data)     uint8 height x width x 3
    is_image(head)         True if the first bytes are those of a supported format

JPEG and PNG are decoded as in evaluation (data/jpeg.py, data/png.py); EXIF rotation is ignored. GIF, BMP, WebP and TIFF
are decoded by Pillow; of an animation the first frame is decoded.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from viaduct.data import jpeg, png
from viaduct.errors import BadData, TooLarge

PILLOW_FORMATS = ("GIF", "BMP", "WEBP", "TIFF")
NOT_AN_IMAGE = "not an image of a known format"  # beginning of an error's message
MAX_PIXELS = 1 << 27  # 134 megapixels, 400 MB decoded
HEAD_BYTES = 32  # how many bytes from the beginning of a file `is_image` needs
BITMAP_HEADERS = (12, 40, 52, 56, 64, 108, 124)  # the sizes that the second header of a BMP may have


def is_image(head: bytes) -> bool:
    """Return True if these first bytes are those of an image in a supported format."""
    if head.startswith(b"RIFF"):  # also the beginning of audio and video files
        return head[8:12] == b"WEBP"
    if head.startswith(b"BM"):  # also the beginning of some texts
        return int.from_bytes(head[14:18], "little") in BITMAP_HEADERS
    return png.is_png(head) or jpeg.is_jpeg(head) or head.startswith(tuple(jpeg.REFUSED))


def read_size(data: bytes) -> tuple[int, int]:
    """Return height and width from the header; raise BadData if it is not that of an image in a supported format."""
    if png.is_png(data) or jpeg.is_jpeg(data):
        return jpeg.read_dimensions(data)
    with open_pillow(data) as image:
        width, height = image.size
        return height, width


def check_size(data: bytes, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return height and width from the header; raise TooLarge if the image has more than `max_pixels`."""
    height, width = read_size(data)
    if height * width > max_pixels:
        raise TooLarge(f"it has {width:,} x {height:,} pixels; at most {max_pixels:,} are decoded.")
    return height, width


def decode_image(data: bytes, *, fancy_upsampling: bool = True, max_pixels: int = MAX_PIXELS) -> jpeg.Pixels:
    """Decode an image; raise BadData if it cannot be decoded or has more than `max_pixels`."""
    height, width = check_size(data, max_pixels)
    if png.is_png(data) or jpeg.is_jpeg(data):
        return jpeg.decode(data, fancy_upsampling=fancy_upsampling)
    with open_pillow(data) as image:
        if height * width > max(jpeg.SMALL_PIXELS, jpeg.PIXELS_A_BYTE * len(data)):
            raise TooLarge(
                f"the {image.format} claims {width:,} x {height:,} pixels, but has {len(data):,} bytes; beyond "
                f"{jpeg.SMALL_PIXELS:,} pixels, at most {jpeg.PIXELS_A_BYTE} a byte are decoded."
            )
        if image.mode in ("I", "F"):
            raise BadData(f"the {image.format} has 32 bits a sample, which is not supported.")
        try:
            if image.mode.startswith("I;16"):  # keep the upper eight bits, as for PNG
                grey = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
                return np.repeat(grey[..., None], 3, axis=2)
            return np.array(image.convert("RGB"))
        except Exception as error:  # Pillow's decoders raise many types of errors for damaged files
            raise BadData(f"the {image.format} cannot be decoded: {error}.") from None


def open_pillow(data: bytes) -> Any:
    """Open an image that is neither JPEG nor PNG, reading only its header."""
    description = jpeg.describe_format(data)  # such as "it is a GIF"
    if not description.startswith("it is a "):
        raise BadData(f"{NOT_AN_IMAGE}: {description}.")
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large sizes, which the caller limits
            return Image.open(io.BytesIO(data), formats=PILLOW_FORMATS)
    except UnidentifiedImageError:  # its message contains the address of an object
        raise BadData(f"{description}, but its header is damaged or cut short.") from None
    except Image.DecompressionBombError:
        raise TooLarge(f"{description} of more pixels than the {MAX_PIXELS:,} that are decoded.") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise BadData(f"{description}, but it cannot be opened: {error}.") from None
