"""Candidates of every tunable kernel against PyTorch: the largest relative error of sampled points, by kernel.

The tests beside this file call it in Triton's interpreter (interpreter.py), with small shapes. On a card tests/gpu
calls the same with its own signatures, also of grouped.cu, which no interpreter runs.
"""

from __future__ import annotations

import json
import random

import torch

from kernels.check_kernels import check_blocks, check_cells, check_stem
from viaduct.kernels.choices import Key, record_launches
from viaduct.kernels.tunable import make_case, make_space
from viaduct.models.resnet import Bottleneck

ROWS = ((37, 24, "float32"), (64, 72, "float32"))
IMAGES = ((2, 24, 7, 5, 3, 2, 0, 0, "float32"), (1, 24, 6, 7, 3, 1, 1, 0, "float32"))
SIGNATURES: dict[str, tuple[tuple[int | str, ...], ...]] = {
    **dict.fromkeys(("scale_shift", "scale_shift_add", "scale_shift_add_two", "batch_norm_input_gradient"), ROWS),
    **dict.fromkeys(("repeat_rows", "sum_terms", "gather_halves", "scatter_halves"), ROWS),
    "batch_norm_statistics": ((203, 24, 1, "float32"),),
    "batch_norm_gradient_sums": ((203, 24, 2, "float32"),),
    "merge_gradients": ((133, 24, 1, "float32"), (133, 24, 4, "float32")),
    "pooling_forward": IMAGES,
    "pooling_backward": IMAGES,
    "max_pooling": ((2, 24, 7, 5, 3, 2, "float32"),),
    "sum_terms_pooled": ((2, 5, 6, 24, "float32"),),
    **dict.fromkeys(("stem_convolution", "stem_inference", "stem_pool", "stem_weight"), ((2, 8, 8, "float32"),)),
    "stem_input": ((2, 8, 8, "float32"),),
    "stem_sums": ((150, "float32"),),
    **{
        f"grouped_{direction}_implementation": (
            (2, 7, 7, 128, 4, 1, 0, 1, "float32"),
            (2, 8, 8, 128, 4, 2, 1, 0, "float32"),
        )
        for direction in ("forward", "input", "weight")
    },
    "library_convolution": ((2, 8, 6, 6, 8, 3, 2, 1, 2, "float32"),),
}


CPU = torch.device("cpu")


def list_keys(*kernels: str) -> list[Key]:
    return [(kernel, signature) for kernel in kernels for signature in SIGNATURES[kernel]]


def find_wrong_points(errors: dict[str, float]) -> dict[str, float]:
    """Return the results of `measure_errors` that are larger than allowed, or not finite."""
    allowed = errors["allowed"]
    return {point: error for point, error in errors.items() if point != "allowed" and not error <= allowed}


def measure_errors(key: Key, device: torch.device, points: int, draws: random.Random) -> dict[str, float]:
    """Return the error of the default and of some other points, with what is allowed under `allowed`."""
    case, space = make_case(key, device), make_space(key, device)
    with record_launches() as launches:
        case.run(None)
    assert key in launches, f"{key} is not what was launched: {list(launches)}"
    others = [point for point in space.points() if point != space.default]
    sample = draws.sample(others, min(points, len(others)))
    errors = {json.dumps(point): case.measure_error(point) for point in (space.default, *sample)}
    return {"allowed": case.allowed_error, "without a choice": case.measure_error(None), **errors}


def record_networks() -> list[Key]:
    """Return what parts of networks launch in a forward and a backward pass: a stem, bottlenecks, cells."""
    with record_launches() as launches:
        check_stem(same=False)
        check_blocks(Bottleneck, same=False, filters=16, mean=True)
        check_cells()
    return list(launches)
