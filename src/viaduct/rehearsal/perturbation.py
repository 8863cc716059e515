"""Perturbation of weights by about one unit in the last place.

A migration may change the order of a sum and so its last bit, a difference that training amplifies. A run of the
original script with perturbed weights measures this amplification; the tolerance for the migrated script follows from
it (`carrying/agreement.py`).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from torch import nn


def perturb_network(network: nn.Module) -> None:
    """Perturb the weights in place, equally on every rank and without using the script's generators."""
    import torch

    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.is_floating_point():
                unit = torch.finfo(parameter.dtype).eps
                factor = torch.from_numpy(1.0 + unit * draw_signs(name, tuple(parameter.shape)))
                parameter.copy_(parameter.detach().cpu().double().mul(factor).to(parameter.dtype))


def perturb_array(name: str, value: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return an array perturbed by about one unit in the last place; integers are unchanged."""
    import numpy

    if value.dtype.kind != "f":
        return value
    factor = 1.0 + float(numpy.finfo(value.dtype).eps) * draw_signs(name, value.shape)
    perturbed: numpy.ndarray[Any, Any] = (value.astype(numpy.float64) * factor).astype(value.dtype)
    return perturbed


def draw_signs(name: str, shape: tuple[int, ...]) -> numpy.ndarray[Any, Any]:
    """Return an array of random 1.0 and -1.0; the weight's name is the seed."""
    import numpy

    drawn: numpy.ndarray[Any, Any] = numpy.random.RandomState(zlib.crc32(name.encode())).randint(0, 2, size=shape)
    return 2.0 * drawn - 1.0
