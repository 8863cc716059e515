"""What one training step has to do: multiplications and bytes, counted from the shapes of the network's own operators.

The network runs forward and backward on PyTorch's meta device, which has shapes but no values. Floating-point
operations are those of convolutions and matrix products, two for each multiplication and addition, forward and
backward. Bytes are counted twice. `bytes_least`: convolutions and matrix products read what they are given and write
what they make, once, and the update reads weights, gradients and momentum and writes two of them; all else is taken to
be fused into these. `bytes_unfused`: every operator reads and writes, as PyTorch runs a network as it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from viaduct.devices.base import first_line

UPDATE_BYTES = 5 * 4  # of fp32: weight, gradient and momentum are read, weight and momentum written


@dataclass(frozen=True)
class Work:
    """What a step has to do, or why it could not be counted."""

    flop: int | None = None
    bytes_least: int | None = None
    bytes_unfused: int | None = None
    why_not: str | None = None


class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what operators multiply, read and write; views move nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flop = self.least = self.unfused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            name, moved = func.overloadpacket.__name__, bytes_of((args, kwargs, made))
            self.unfused += moved
            if name in FLOP:
                self.flop += FLOP[name](args, made)
                self.least += moved + (read_again(args) if name == "convolution_backward" else 0)
        return made


def bytes_of(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def read_again(args: Any) -> int:
    """A convolution's backward pass is two convolutions, each of which reads the gradient of the output."""
    both = bool(args[10][0] and args[10][1])
    return int(args[0].nbytes) if both else 0


def convolution_flop(args: Any, made: Any) -> int:
    transposed = args[6]
    return 2 * int((args[0] if transposed else made).numel()) * int(args[1][0].numel())


def convolution_backward_flop(args: Any, made: Any) -> int:
    """As much as forward for each gradient that is asked for: of the input, of the weights."""
    gradient, images, weight, transposed = args[0], args[1], args[2], args[7]
    once = 2 * int((images if transposed else gradient).numel()) * int(weight[0].numel())
    return once * (bool(args[10][0]) + bool(args[10][1]))


def product_flop(args: Any, made: Any) -> int:
    return 2 * int(made.numel()) * int(args[-2].shape[-1])


# torch.utils.flop_counter counts the backward pass of grouped convolutions as if they were not grouped (torch 2.13).
FLOP: dict[str, Callable[[Any, Any], int]] = {
    "convolution": convolution_flop,
    "convolution_backward": convolution_backward_flop,
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), product_flop),
}


def count(build: Callable[[], nn.Module], batch: int, size: int, dtype: torch.dtype) -> Work:
    """One step of a network in that precision. A network that meta tensors cannot go through is not counted."""
    try:
        with torch.device("meta"):
            network = build().to(dtype).train()
            images = torch.empty(batch, 3, size, size, dtype=dtype)
        with Tally() as tally:
            made = network(images)
            parts = made if isinstance(made, tuple) else (made,)
            torch.stack([part.sum() for part in parts]).sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:
        # A person's own network may need values to run: then there are no figures, and that is said.
        return Work(why_not=f"the network does not run without values: {first_line(error)}")
    update = UPDATE_BYTES * sum(parameter.numel() for parameter in network.parameters())
    return Work(tally.flop, tally.least + update, tally.unfused + update)
