"""Fast inference with a trained network on one device.

    engine = build_engine(classifier, device="cuda")
    logits = engine.run(inputs)            float32 N x 3 x size x size on the host, to float32 N x classes on the host

With `fold`, batch norms are folded into the convolutions, sums and ReLUs are fused into them, and the weights are cast
to the compute precision; folding_effect.py measures the effect on the outputs. On NVIDIA cards the forward pass is then
captured as a CUDA graph for each rounded batch size. Without `fold`, or if the network cannot be traced (`Engine.note`
then says so), it runs as in `viaduct evaluate`. Only one thread may use an engine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from viaduct import devices
from viaduct.devices.base import Device
from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier
from viaduct.handover.folding import CannotTrace, fold_batch_norms
from viaduct.handover.fusing import choose_kernels, fuse_convolutions
from viaduct.recipes._fields import override
from viaduct.training.networks import place_model
from viaduct.training.precision import DTYPES, Computation, plan_precision

MAX_CAPTURE = 1024  # most images in a captured pass; larger batches are split


@dataclass
class Engine:
    """A network on its device; `run` computes logits."""

    size: int
    device: torch.device
    device_module: Device  # module of viaduct.devices for this kind of device
    precision: str  # fp32 | bf16 | fp16
    network: Callable[[Tensor], Tensor]  # inputs on the device, in `dtype`, to logits
    dtype: torch.dtype
    folded: bool
    note: str = ""  # for the user, if folding failed
    passes: dict[int, CapturedPass] = field(default_factory=dict)  # captured passes by rounded batch size

    @torch.inference_mode()
    def run(self, inputs: Tensor) -> Tensor:
        """Return the logits of prepared images; both are float32 on the host."""
        if not len(inputs):
            raise BadValue("an engine needs at least one image.")
        if self.device.type != "cuda" or not self.folded:
            moved = inputs.to(self.device, self.dtype).contiguous(memory_format=torch.channels_last)
            return self.network(moved).to("cpu", torch.float32)
        starts = range(0, len(inputs), MAX_CAPTURE)
        parts = [self.run_captured(inputs[start : start + MAX_CAPTURE]) for start in starts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def run_captured(self, inputs: Tensor) -> Tensor:
        """Replay the captured pass of the rounded batch size; capture it if there is none yet."""
        count = len(inputs)
        batch = round_up(count)
        if batch not in self.passes:
            self.passes[batch] = capture_pass(self.network, batch, self.size, self.device, self.dtype)
        captured = self.passes[batch]
        captured.inputs[:count].copy_(inputs, non_blocking=True)
        captured.graph.replay()
        return captured.logits[:count].to("cpu", torch.float32)

    def warm_up(self, batch: int) -> None:
        """Run three batches of this size, so that kernels are compiled and chosen, and CUDA's pass is captured."""
        inputs = torch.zeros(batch, 3, self.size, self.size)
        for _ in range(3):
            self.run(inputs)


@dataclass(frozen=True)
class CapturedPass:
    """Forward pass captured as a CUDA graph, with the memory that it reads and writes."""

    inputs: Tensor
    logits: Tensor
    graph: torch.cuda.CUDAGraph


def build_engine(
    classifier: Classifier, device: str = "auto", precision: str | None = None, fold: bool = True, batch: int = 8
) -> Engine:
    """Build the engine of a classifier.

    `precision` is the compute precision; None: the recipe's. `batch` is the number of images for which kernels are
    chosen; other numbers can be run, too. The recipe's TF32 setting is made for the whole process.
    """
    device_module, torch_device = devices.pick(device)
    recipe = classifier.recipe if precision is None else override(classifier.recipe, "precision.compute", precision)
    device_module.set_tf32(recipe.precision.tf32)
    plan = plan_precision(recipe.precision, device_module)
    note = ""
    if fold:
        try:
            folded = fuse_convolutions(fold_batch_norms(classifier.network, classifier.size))
        except CannotTrace as error:
            note = f"Not folded: {error.message}"
        else:
            dtype = DTYPES[plan.compute]
            network = place_model(folded, torch_device).to(dtype)
            choose_kernels(network, batch, classifier.size)
            return Engine(classifier.size, torch_device, device_module, plan.compute, network, dtype, folded=True)
    model = place_model(copy.deepcopy(classifier.network), torch_device)
    computation = Computation(model, plan, torch_device)
    computation.train(False)
    return Engine(classifier.size, torch_device, device_module, plan.compute, computation, torch.float32, False, note)


def round_up(count: int) -> int:
    """Return the batch size to capture: the next power of two up to 64, then the next multiple of 64."""
    return 1 << (count - 1).bit_length() if count <= 64 else -(-count // 64) * 64


@torch.inference_mode()
def capture_pass(
    network: Callable[[Tensor], Tensor], batch: int, size: int, device: torch.device, dtype: torch.dtype
) -> CapturedPass:
    """Capture a forward pass as a CUDA graph, after three passes in which cuDNN chooses its algorithms."""
    inputs = torch.zeros(batch, 3, size, size, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=torch.backends.cudnn.allow_tf32):
        with torch.cuda.stream(stream):
            for _ in range(3):
                network(inputs)
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = network(inputs)
    return CapturedPass(inputs, logits, graph)
