"""How much does a script make of a rounding error? Every weight is moved by about one unit in its last place.

Rewriting a script may change the order in which a sum is taken, and so the last bit of it. Training magnifies that. A
second run of the original, shaken so before its first step, shows by how much: a yardstick for the migrated run.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from torch import nn


def shake_network(network: nn.Module) -> None:
    """Without drawing from any generator that the script may use; the same on every rank."""
    import torch

    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.is_floating_point():
                unit = torch.finfo(parameter.dtype).eps
                factor = torch.from_numpy(1.0 + unit * signs(name, tuple(parameter.shape)))
                parameter.copy_(parameter.detach().cpu().double().mul(factor).to(parameter.dtype))


def shaken(name: str, value: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    import numpy

    if value.dtype.kind != "f":
        return value
    factor = 1.0 + float(numpy.finfo(value.dtype).eps) * signs(name, value.shape)
    moved: numpy.ndarray[Any, Any] = (value.astype(numpy.float64) * factor).astype(value.dtype)
    return moved


def signs(name: str, shape: tuple[int, ...]) -> numpy.ndarray[Any, Any]:
    """+1 or -1, by the weight's name."""
    import numpy

    drawn: numpy.ndarray[Any, Any] = numpy.random.RandomState(zlib.crc32(name.encode())).randint(0, 2, size=shape)
    return 2.0 * drawn - 1.0
