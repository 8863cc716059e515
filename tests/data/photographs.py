"""Real photographs, from scikit-image's wheel; and TensorFlow, quietly, for tests that compare with it."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pytest
import simplejpeg
import skimage.data

NAMES = ("chelsea", "coffee", "astronaut", "rocket", "retina", "hubble", "small", "tall", "wide")


@cache
def photograph(name: str) -> np.ndarray:
    """A cat, a cup, a person, a rocket, two large ones, and three of awkward sizes."""
    if name == "hubble":
        return skimage.data.hubble_deep_field()
    if name == "small":
        return np.ascontiguousarray(skimage.data.chelsea()[::4, ::4])
    if name == "tall":
        return np.ascontiguousarray(skimage.data.astronaut()[:, 150:281])
    if name == "wide":
        return np.ascontiguousarray(skimage.data.coffee()[100:197])
    return np.ascontiguousarray(getattr(skimage.data, name)()[..., :3])


@cache
def encode_photograph(name: str, subsampling: str = "420", quality: int = 92) -> bytes:
    return simplejpeg.encode_jpeg(photograph(name), quality=quality, colorsubsampling=subsampling)


@cache
def tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    made = pytest.importorskip("tensorflow", reason="compares with TensorFlow: pip install 'viaduct[tf]'")
    made.get_logger().setLevel("ERROR")
    return made
