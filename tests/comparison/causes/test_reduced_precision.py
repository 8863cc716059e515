"""Values that were rounded to half precision once."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import Array, Layer, convolve, name_cause_of_output
from viaduct.comparison.grids import BFLOAT16, FLOAT16, TF32


def test_one_rounding_to_half_precision_is_reduced_precision(values: Array) -> None:
    for grid in (FLOAT16, BFLOAT16):
        assert (
            name_cause_of_output(grid.round(values.astype(np.float64)).astype(np.float32), values)
            == "reduced precision"
        )


def test_tf32_and_float16_are_told_apart_by_range_alone() -> None:
    for size, name in ((1.0, "rounded to TF32 or float16,"), (1e6, "rounded to TF32,")):
        layer = Layer()
        layer.x *= np.float32(size)
        rounded = [TF32.round(part.astype(np.float64)) for part in (layer.x, layer.weight)]
        assert layer.find_cause_of(convolve(*rounded)) == "reduced precision"
        assert name in layer.builder.causes()[0].evidence


def test_a_layer_with_rounded_inputs_is_reduced_precision() -> None:
    layer = Layer()
    rounded = [BFLOAT16.round(part.astype(np.float64)) for part in (layer.x, layer.weight)]
    assert layer.find_cause_of(convolve(*rounded)) == "reduced precision"
