"""Decoding no more of a JPEG than a view needs, where the extension `_region.c` was built.

    decode_view(data, rows, columns, out)   True: `out` is `resample(decode(data), rows, columns)`, bit for bit
                                            False: decode it whole (no extension, a PNG, CMYK, damage of any kind)
    describe_decoder()                      which of the two this installation uses, in words

The extension is built where a compiler and libjpeg-turbo's headers are at hand. VIADUCT_NO_REGION=1 leaves it unused.

A JPEG that is cut short is not touched here, so that it is refused as ever. Damage below the rows that a view needs is
not seen, because nothing below them is read: `viaduct data check --deep` looks at whole images.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from viaduct.data import jpeg
from viaduct.data.geometry import Axis

Floats = npt.NDArray[np.float32]
Lines = tuple[Floats, Floats]  # added to a row of `out`, then multiplied with it

SWITCH = "VIADUCT_NO_REGION"
END = b"\xff\xd9"


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
    decode = find_compiled("see")
    if decode is None or not jpeg.is_jpeg(data) or not is_complete(data):
        return False
    shift, factor = normal or (None, None)
    done: bool = decode(data, *rows, *columns, out, shrink, dct == "fast", fancy_upsampling, shift, factor)
    return done


def is_complete(data: jpeg.Encoded) -> bool:
    """Return True if the JPEG has an end-of-image marker."""
    return data[-2:] == END or jpeg.has_end_marker(bytes(data))


def describe_decoder() -> str:
    """Return which decoder this installation uses, in words."""
    if is_switched_off():
        return f"whole images with simplejpeg ({SWITCH} is set)"
    try:
        return f"the region of a crop with libjpeg-turbo {load_extension().VERSION}"
    except ImportError as error:
        return f"whole images with simplejpeg (no extension: {error})"


@cache
def find_compiled(name: str) -> Callable[..., Any] | None:
    """Return a function of the extension; None where it is not used, not built, or built of an older source."""
    if is_switched_off():
        return None
    try:
        found: Callable[..., Any] | None = getattr(load_extension(), name, None)
    except ImportError:
        return None
    return found


def load_extension() -> ModuleType:
    """Import the compiled extension."""
    return import_module("viaduct.data._region")


def is_switched_off() -> bool:
    """Return True if the environment turns the extension off."""
    return os.environ.get(SWITCH, "") not in ("", "0")
