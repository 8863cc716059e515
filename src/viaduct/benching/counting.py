"""Count of the floating-point operations and bytes of one training step, from the shapes of the network's operators.

The network runs forward and backward on PyTorch's meta device, which has shapes but no values. Floating-point
operations are counted for convolutions and matrix products, two for each multiply-add, forward and backward. Bytes are
counted in two ways. `bytes_least` assumes perfect fusion: each convolution and matrix product reads its inputs and
writes its output once, and every other operator is fused into these. `bytes_unfused` counts the reads and writes of
every operator, as in eager PyTorch. Both add the update of SGD with momentum for every recipe: it reads
weights, gradients and momentum, and writes weights and momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from viaduct.devices.base import summarise_error
from viaduct.profiling.flop_formulas import Call, count_work

UPDATE_BYTES = 5 * 4  # fp32 per parameter: weight, gradient and momentum are read, weight and momentum are written


@dataclass(frozen=True)
class StepWork:
    """Operations and bytes of one training step; `why_not` is the reason if they could not be counted, else None."""

    flop: int | None = None
    bytes_least: int | None = None
    bytes_unfused: int | None = None
    why_not: str | None = None


class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that adds up the operations and bytes of all operators; views move no bytes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flop = self.least = self.unfused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not func.is_view:
            name, moved_bytes = func.overloadpacket.__name__, count_bytes((args, kwargs, output))
            self.unfused += moved_bytes
            work = count_work(describe_call(name, args))
            if work.family in ("convolution", "product") and work.flops is not None:
                self.flop += int(work.flops)
                self.least += moved_bytes + (count_second_read(args) if name == "convolution_backward" else 0)
        return output


def count_bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def count_second_read(args: Any) -> int:
    """Return the bytes of the output gradient if a convolution's backward pass reads it twice.

    The gradients w.r.t. input and w.r.t. weight are two convolutions, and each of them reads the output gradient.
    `args` are the arguments of aten::convolution_backward.
    """
    gradient, output_mask = args[0], args[10]
    return int(gradient.nbytes) if output_mask[0] and output_mask[1] else 0


def describe_call(name: str, args: Any) -> Call:
    """Return the call of an aten operator as a trace of torch.profiler describes it."""
    tensors = [arg if isinstance(arg, Tensor) else None for arg in args]
    return Call(
        name,
        shapes=[[] if tensor is None else list(tensor.shape) for tensor in tensors],
        dtypes=["" if tensor is None else str(tensor.dtype).removeprefix("torch.") for tensor in tensors],
        values=["" if tensor is not None else str(arg) for arg, tensor in zip(args, tensors, strict=True)],
    )


def count_step_work(build: Callable[[], nn.Module], batch: int, size: int, dtype: torch.dtype) -> StepWork:
    """Return the work of one training step; for a network that fails on meta tensors only `why_not`."""
    try:
        with torch.device("meta"):
            network = build().to(dtype).train()
            images = torch.empty(batch, 3, size, size, dtype=dtype)
        with Tally() as tally:
            output = network(images)
            outputs = output if isinstance(output, tuple) else (output,)
            torch.stack([head.sum() for head in outputs]).sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:
        # A user's own network may read tensor values.
        return StepWork(why_not=f"the network does not run without values: {summarise_error(error)}")
    update = UPDATE_BYTES * sum(parameter.numel() for parameter in network.parameters())
    return StepWork(tally.flop, tally.least + update, tally.unfused + update)
