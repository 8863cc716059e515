"""Images inside of pages, as data URIs."""

from __future__ import annotations

import base64

from viaduct.data.png import Bytes as Pixels
from viaduct.data.png import check_pixels, encode_png

__all__ = ["Pixels", "check_pixels", "data_uri", "encode_png"]


def data_uri(content: bytes, media_type: str = "image/png") -> str:
    """Return content as a data URI."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
