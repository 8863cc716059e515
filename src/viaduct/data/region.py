"""Decoding of no more of a JPEG than a view needs, where the extension `_region.c` was built.

    decode_view(data, rows, columns, out)   True: `out` is `resample(decode(data), rows, columns)`, bit for bit
                                            False: decode it whole (no extension, a PNG, CMYK, damage of any kind)
    describe_decoder()                      which of the two this installation uses, in words

The extension is built where a compiler and libjpeg-turbo's headers are at hand. VIADUCT_NO_REGION=1 leaves it unused.

A JPEG that is cut short is left to `jpeg.decode`, which refuses it. Damage below the rows that a view needs is not
noticed, because nothing below them is read: `viaduct data check --deep` decodes whole images.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from viaduct.data import jpeg
from viaduct.data.compiled import find_compiled
from viaduct.data.geometry import Axis

Floats = npt.NDArray[np.float32]
Lines = tuple[Floats, Floats]  # added to a row of `out`, then multiplied with it

SWITCH = "VIADUCT_NO_REGION"
END = b"\xff\xd9"  # JPEG's end-of-image marker


def decode_view(
    data: jpeg.Encoded,
    rows: Axis,
    columns: Axis,
    out: Floats,
    *,
    shrink: jpeg.Shrink = 1,
    dct: jpeg.Dct = "fast",
    fancy_upsampling: bool = True,
    normal: Lines | None = None,
) -> bool:
    """Decode the pixels at these positions into `out`, normalised if `normal` says how; False if that cannot be."""
    decode = find_function("see")
    is_complete = data[-2:] == END or jpeg.has_end_marker(bytes(data))
    if decode is None or not jpeg.is_jpeg(data) or not is_complete:
        return False
    shift, factor = normal or (None, None)
    done: bool = decode(data, *rows, *columns, out, shrink, dct == "fast", fancy_upsampling, shift, factor)
    return done


def describe_decoder() -> str:
    """Return which decoder this installation uses, in words."""
    if is_switched_off():
        return f"whole images with simplejpeg ({SWITCH} is set)"
    try:
        return f"the region of a crop with libjpeg-turbo {import_module('viaduct.data._region').VERSION}"
    except ImportError as error:
        return f"whole images with simplejpeg (no extension: {error})"


def find_function(name: str) -> Callable[..., Any] | None:
    """Return a function of the extension; None where it is switched off, not built, or built of an older source."""
    return None if is_switched_off() else find_compiled("_region", name)


def is_switched_off() -> bool:
    """Return True if the environment turns the extension off."""
    return os.environ.get(SWITCH, "") not in ("", "0")
