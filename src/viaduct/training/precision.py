"""Reduced precision: autocast, casting the network, and scaling the loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from viaduct.devices.base import Device
from viaduct.errors import BadValue
from viaduct.recipes import Precision
from viaduct.training.compiling import Compilation, CompileMode
from viaduct.training.optim import NORMS
from viaduct.training.single_pixels import guard_single_pixels

MAX_STREAK = 50  # overflows in a row with a fixed scale, after which no further step is expected to succeed
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class PrecisionPlan:
    """A recipe's precision, resolved for one device."""

    compute: str  # fp32, bf16 or fp16
    cast_network: bool = False  # O2 and O3: the network itself is cast; the optimizer keeps fp32 master weights
    cast_norms: bool = False  # O3: its norms are cast, too

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the computation."""
        return DTYPES[self.compute]

    @property
    def name(self) -> str:
        """The name of the dtype, followed by "network" if the network itself is cast."""
        return f"{self.compute} network" if self.cast_network else self.compute


def plan_precision(precision: Precision, device: Device) -> PrecisionPlan:
    """Resolve a recipe's precision on a device, by the rules of `recipes.Precision`."""
    level = precision.compute
    if level == "auto":
        native = device.list_native_dtypes()  # without bf16: Ascend 910, MLU370, NVIDIA Volta and Turing
        return PrecisionPlan(next((dtype for dtype in ("bf16", "fp16") if dtype in native), "fp32"))
    if level in ("fp32", "O0"):
        return PrecisionPlan("fp32")
    if level in ("bf16", "fp16", "O1"):
        return PrecisionPlan(level if level != "O1" else choose_reduced_dtype(device))
    keeps_norms = precision.keep_batchnorm_fp32
    if keeps_norms is None:
        keeps_norms = level == "O2"
    return PrecisionPlan(choose_reduced_dtype(device), cast_network=True, cast_norms=not keeps_norms)


def choose_reduced_dtype(device: Device) -> str:
    """Return the dtype of the levels O1 to O3: native fp16, else native bf16, else a dtype that the device emulates.

    Raise BadValue if the device has none of these.
    """
    native = device.list_native_dtypes()
    if "fp16" in native:
        return "fp16"
    usable = native or device.list_emulated_dtypes()
    if not usable:
        raise BadValue(f"{device.NAME} computes in neither fp16 nor bf16.", "Use --precision fp32 (level O0).")
    return usable[0]


def describe_emulation(plan: PrecisionPlan, device: Device) -> str | None:
    """Return a line for the user if the device emulates the plan's precision, else None."""
    if plan.compute == "fp32" or plan.compute not in device.list_emulated_dtypes():
        return None
    return (
        f"Note: this {device.NAME} has no {plan.compute} instructions and computes {plan.compute} in software, "
        "usually slower than fp32; --precision auto avoids it."
    )


class LossScale:
    """Factor of the loss that keeps small fp16 gradients from vanishing.

    With `skips_overflows` a step whose gradients overflow is skipped and counted. A dynamic scale doubles after
    `scale_grow_every` good steps in a row, and halves, but not below 1, after `scale_shrink_after` overflows.
    """

    def __init__(self, precision: Precision, compute: str) -> None:
        setting = precision.loss_scale
        if setting == "auto":
            setting = precision.fp16_scale if compute == "fp16" else 1.0
        self.is_dynamic = setting == "dynamic"
        self.value = precision.scale_start if self.is_dynamic else float(setting)
        # If True, the host waits for the device in every step that it drives, to look for overflows.
        self.skips_overflows = self.is_dynamic or (compute == "fp16" and precision.drop_overflow)
        self.grow_every, self.shrink_after = precision.scale_grow_every, precision.scale_shrink_after
        self.good = 0  # steps since the last overflow, or since the scale doubled
        self.overflows = 0  # number of overflows since the scale last changed
        self.skipped = 0  # number of steps skipped in the whole run
        self.streak = 0  # number of overflows in a row; checkpoints do not have it

    @property
    def is_exhausted(self) -> bool:
        """Return True if overflows are taken to go on, because the scale cannot shrink."""
        if self.is_dynamic:
            return self.streak > 0 and self.value <= 1.0
        return self.streak >= MAX_STREAK

    def update(self, finite: bool) -> None:
        """Count a step, and adapt a dynamic scale; `finite` is False if its gradients overflowed."""
        if finite:
            self.good, self.streak = self.good + 1, 0
            if self.is_dynamic and self.good >= self.grow_every:
                self.value, self.good, self.overflows = self.value * 2, 0, 0
            return
        self.skipped, self.streak, self.overflows, self.good = self.skipped + 1, self.streak + 1, self.overflows + 1, 0
        if self.is_dynamic and self.overflows >= self.shrink_after:
            self.value, self.overflows = max(self.value / 2, 1.0), 0

    def get_state(self) -> dict[str, Any]:
        """Return the scale's part of a checkpoint."""
        return {"value": self.value, "good": self.good, "overflows": self.overflows, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        self.value, self.good = state["value"], state["good"]
        self.overflows, self.skipped = state["overflows"], state["skipped"]


class Computation:
    """The network as the device runs it, and the fp32 master weights that the optimizer and checkpoints hold.

    `network` is a cast copy of `master` if the plan casts the network. Else both are the same module, and the methods
    that copy weights, gradients or statistics between them do nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: PrecisionPlan,
        device: torch.device,
        compile: CompileMode = "off",
        compile_parts: str = "",
        device_graphs: bool = False,
        parallel: Callable[[nn.Module], nn.Module] = lambda network: network,
        fuse: Callable[[nn.Module], int] = lambda network: 0,
    ) -> None:
        """Cast the network, install viaduct's kernels, wrap the network for several ranks, and compile it.

        `fuse` installs the kernels and returns how many parts use them; `parallel` wraps the network. The other options
        are those of `Compilation`.
        """
        self.precision_plan = plan
        self.master = model
        self.network = copy_cast(model, plan) if plan.cast_network else model
        self.device = device
        if device.type == "cpu" and plan.compute != "fp32":
            guard_single_pixels(self.network)  # works around a bug of oneDNN
        self.fused_count = fuse(self.network)
        self.wrapped = parallel(self.network)  # shares the network's weights
        self.compilation = Compilation(self.wrapped, self.network, compile, device_graphs, compile_parts)
        self.run = self.compilation.run  # calls the network, compiled or not

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits in fp32."""
        return self.compute_outputs(images)[0]

    def compute_outputs(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the logits in fp32; in training they are followed by those of any auxiliary heads."""
        if self.compilation.uses_device_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if self.precision_plan.cast_network:
            images = images.to(self.precision_plan.dtype)
        autocast = self.precision_plan.compute != "fp32" and not self.precision_plan.cast_network
        with torch.autocast(self.device.type, dtype=self.precision_plan.dtype if autocast else None, enabled=autocast):
            outputs: Tensor | tuple[Tensor, ...] = self.run(images)
        return tuple(logits.float() for logits in (outputs if isinstance(outputs, tuple) else (outputs,)))

    @contextmanager
    def run_uncompiled(self) -> Iterator[nn.Module]:
        """Run the network without compiled code within the block; yields the network."""
        compiled, self.run = self.run, self.wrapped
        try:
            with self.compilation.run_uncompiled():
                yield self.network
        finally:
            self.run = compiled

    @contextmanager
    def accumulate_part(self, is_last: bool) -> Iterator[None]:
        """Context of one part of an accumulated step: ranks exchange gradients in the last part only."""
        if is_last or not isinstance(self.wrapped, DistributedDataParallel):
            yield
            return
        with self.wrapped.no_sync():
            yield

    def train(self, on: bool) -> None:
        """Switch the network to training mode or, if not `on`, to evaluation mode."""
        self.master.train(on)
        self.wrapped.train(on)

    def gather_gradients(self) -> None:
        """Move the network's gradients to the master weights, in fp32."""
        if self.network is self.master:
            return
        for master, working in zip(self.master.parameters(), self.network.parameters(), strict=True):
            master.grad = None if working.grad is None else working.grad.float()
            working.grad = None

    def publish_weights(self) -> None:
        """Copy the master weights to the network, after they have changed."""
        self.copy_tensors(self.master.parameters(), self.network.parameters())

    def publish_statistics(self) -> None:
        """Copy the master's batch norm statistics to the network, after they were loaded."""
        self.copy_tensors(self.master.buffers(), self.network.buffers())

    def gather_statistics(self) -> None:
        """Copy the network's batch norm statistics to the master, before they are read there."""
        self.copy_tensors(self.network.buffers(), self.master.buffers())

    @torch.no_grad()
    def copy_tensors(self, sources: Iterator[Tensor], targets: Iterator[Tensor]) -> None:
        if self.network is not self.master:
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source)


def copy_cast(model: nn.Module, plan: PrecisionPlan) -> nn.Module:
    """Return a copy of the model cast to the plan's dtype; its norms stay in fp32 unless `plan.cast_norms`."""
    network = copy.deepcopy(model).to(plan.dtype)
    if not plan.cast_norms:
        for module in network.modules():
            if isinstance(module, NORMS):
                module.float()
    return network


def unscale_gradients(parameters: list[nn.Parameter], scale: float) -> None:
    """Divide the gradients by the loss scale, in place."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if scale != 1.0 and gradients:
        torch._foreach_mul_(gradients, 1.0 / scale)


def has_finite_gradients(parameters: list[nn.Parameter]) -> bool:
    """Return True if no gradient has NaN or infinity. Waits for the device."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    # The largest magnitude is infinite or NaN only if some element is; a 2-norm could overflow by itself.
    norms = torch._foreach_norm(gradients, float("inf"))
    return bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())
