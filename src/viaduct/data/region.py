"""Decoding of only the part of a JPEG that is sampled, by the C extension `_region.c`.

    decode_view(data, rows, columns, out)   True: `out` is `resample(decode(data), rows, columns)`, bit for bit
                                            False: the caller must decode the whole image (PNG, CMYK, damage in the
                                            rows that were read, no extension)
    describe_decoder()                      description of the decoder of this installation

The extension is built if a compiler and libjpeg-turbo's headers are present. VIADUCT_NO_REGION=1 disables it. Damage
below the sampled rows is not detected, because it is not read; `viaduct data check --deep` decodes whole images.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from viaduct.data import jpeg
from viaduct.data.compiled import find_compiled
from viaduct.data.geometry import Axis, Floats

NormalisationRows = tuple[Floats, Floats]  # what is added to each row of `out`, and what the sum is multiplied by

DISABLING_VARIABLE = "VIADUCT_NO_REGION"
END_OF_IMAGE = b"\xff\xd9"  # JPEG's end-of-image marker


def decode_view(
    data: jpeg.Encoded,
    rows: Axis,
    columns: Axis,
    out: Floats,
    *,
    shrink: jpeg.Shrink = 1,
    dct: jpeg.Dct = "fast",
    fancy_upsampling: bool = True,
    normalisation: NormalisationRows | None = None,
) -> bool:
    """Sample an image at these positions into `out`, and normalise it if `normalisation` is given.

    Return False if the extension cannot decode the image.
    """
    decode = find_function("decode_view")
    is_complete = data[-2:] == END_OF_IMAGE or jpeg.has_end_marker(bytes(data))
    if decode is None or not jpeg.is_jpeg(data) or not is_complete:
        return False
    shift, factor = normalisation or (None, None)
    is_decoded: bool = decode(data, *rows, *columns, out, shrink, dct == "fast", fancy_upsampling, shift, factor)
    return is_decoded


def describe_decoder() -> str:
    if is_disabled():
        return f"whole images with simplejpeg ({DISABLING_VARIABLE} is set)"
    try:
        return f"the region of a crop with libjpeg-turbo {import_module('viaduct.data._region').VERSION}"
    except ImportError as error:
        return f"whole images with simplejpeg (no extension: {error})"


def find_function(name: str) -> Callable[..., Any] | None:
    """Return a function of the extension; None if it is switched off, not built, or too old to have the function."""
    return None if is_disabled() else find_compiled("_region", name)


def is_disabled() -> bool:
    """Return True if VIADUCT_NO_REGION disables the extension."""
    return os.environ.get(DISABLING_VARIABLE, "") not in ("", "0")
