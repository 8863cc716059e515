"""Data URIs of images. The PNG encoder is data/png_encoder.py: pages are written without Pillow, which is an extra."""

from __future__ import annotations

import base64

from viaduct.data.png_encoder import Pixels, check_pixels, encode_png

__all__ = ["Pixels", "check_pixels", "data_uri", "encode_png"]


def data_uri(content: bytes, media_type: str = "image/png") -> str:
    """Return content as a data URI."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
