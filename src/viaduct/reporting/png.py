"""Pixels to PNG, to data URI: what a page needs to hold a picture. The encoder itself is data/png_encoder.py."""

from __future__ import annotations

import base64

from viaduct.data.png_encoder import Pixels, check_pixels, encode_png

__all__ = ["Pixels", "check_pixels", "data_uri", "encode_png"]


def data_uri(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
