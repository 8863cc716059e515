"""Apply a tuning bank's choices, the fastest measured variants, to a network and its optimizer.

    calls = observe_calls(network, lambda: network(images))        # calls of operators in a forward pass
    applied = apply_choices(calls, optimizer, choices)
    applied.switch(False); applied.switch(True)                    # without and with the choices, for a comparison

A module's `forward` is replaced on the instance. With gradients enabled, calls of the tuned shape, type and layout use
the variant. All other calls use the default: evaluation, a smaller last batch, another batch size. Parameters, buffers
and state_dict do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import choices as kernel_choices
from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import conv2d, kernel, linear, optimizer
from viaduct.tuning.signature import Signature

MODULE_KINDS = {nn.Conv2d: conv2d, nn.Linear: linear}
MAX_THREADS = 4096  # a larger number in a bank is ignored


@dataclass(frozen=True)
class Call:
    """A call of a module in a forward pass."""

    name: str  # of the module in the network
    module: nn.Module
    signature: Signature
    device: str  # type of the input's device
    input_key: tuple[Any, ...]  # shape, strides, dtype and more of the input, from `make_input_key`


class TunedForward:
    """Forward pass of one module: variants for tuned calls, the module's default for all others."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.default = module.forward
        self.variants: dict[tuple[Any, ...], Callable[[Any, Tensor], Tensor]] = {}  # by `make_input_key` of the input
        self.is_on = True

    def __call__(self, x: Tensor) -> Tensor:
        if self.is_on and torch.is_grad_enabled():
            variant = self.variants.get(make_input_key(x))
            if variant is not None:
                return variant(self.module, x)
        y: Tensor = self.default(x)
        return y


def make_input_key(x: Tensor) -> tuple[Any, ...]:
    """Return what decides which variant a call uses; every call computes it, so it must be cheaper than a signature."""
    device_type = x.device.type
    autocast = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    return x.shape, x.stride(), x.dtype, x.requires_grad, autocast, device_type


def observe_calls(network: nn.Module, run: Callable[[], object]) -> list[Call]:
    """Return the calls of tunable modules during `run` that have gradients enabled and a single tensor argument."""
    calls: list[Call] = []
    names = {module: name for name, module in network.named_modules()}

    def record_call(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if len(arguments) == 1 and isinstance(x := arguments[0], Tensor) and torch.is_grad_enabled():
            signature = MODULE_KINDS[type(module)].describe(module, x)
            if signature is not None:
                calls.append(Call(names[module], module, signature, x.device.type, make_input_key(x)))

    candidates = [module for module in names if type(module) in MODULE_KINDS and "forward" not in vars(module)]
    handles = [module.register_forward_pre_hook(record_call) for module in candidates]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return calls


@dataclass
class AppliedChoices:
    """Choices applied to a network and its optimizer, which can be switched off and on."""

    forwards: list[TunedForward] = field(default_factory=list)
    optimizer: torch.optim.Optimizer | None = None
    optimizer_choice: Choice | None = None
    kernels: dict[kernel_choices.Key, Choice] = field(default_factory=dict)  # launch parameters of viaduct's kernels
    threads: int | None = None  # number of CPU threads; None: not changed
    threads_before: int = 0  # number without the choices
    choices: dict[str, Choice] = field(default_factory=dict)  # all applied choices, by key of the operator's signature

    def switch(self, on: bool) -> None:
        """Use the choices, or the defaults, from now on."""
        for forward in self.forwards:
            forward.is_on = on
        if self.optimizer is not None and self.optimizer_choice is not None:
            optimizer.set_implementation(self.optimizer, self.optimizer_choice if on else optimizer.DEFAULT)
        if self.kernels and on:
            kernel_choices.set_choices(self.kernels)
        elif self.kernels:
            kernel_choices.clear_choices()
        if self.threads is not None:
            torch.set_num_threads(self.threads if on else self.threads_before)

    def remove(self) -> None:
        """Switch the choices off and restore the modules' own forward passes."""
        self.switch(False)
        for forward in self.forwards:
            if vars(forward.module).get("forward") is forward:
                del forward.module.forward

    def describe(self) -> str:
        """Return a summary: `3 choices: 12 modules, optimizer foreach, 1 thread`."""
        parts = [format_count(len(self.forwards), "module")] if self.forwards else []
        if self.optimizer_choice is not None:
            parts.append(f"optimizer {self.optimizer_choice['implementation']}")
        if self.kernels:
            parts.append(format_count(len(self.kernels), "kernel launch", "kernel launches"))
        if self.threads is not None:
            parts.append(format_count(self.threads, "thread"))
        return f"{format_count(len(self.choices), 'choice')}: {', '.join(parts) or 'nothing'}"


def format_count(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def apply_choices(
    network_calls: Sequence[Call],
    torch_optimizer: torch.optim.Optimizer | None,
    choices: Mapping[str, Choice],
    threads_key: str = "",
    uses_own_kernels: bool = False,
) -> AppliedChoices:
    """Apply the choices that match the calls and the optimizer; ignore others.

    `choices` are by key of the operator's signature, and `threads_key` is the key of the number of threads. Choices for
    kernels apply only if the network runs on viaduct's own kernels (`uses_own_kernels`).
    """
    applied = AppliedChoices()
    forwards: dict[nn.Module, TunedForward] = {}
    for call in network_calls:
        choice = choices.get(call.signature.key)
        if choice is None:
            continue
        kind = MODULE_KINDS[type(call.module)]
        space = kind.make_space(call.signature, device=call.device, allow_compiled=True)
        if dict(choice) == kind.DEFAULT or space.explain_invalid(choice):
            continue  # the default, or a variant that this machine does not have: compiled ones need a C++ compiler
        if call.module not in forwards:
            call.module.forward = forwards[call.module] = TunedForward(call.module)
        forwards[call.module].variants[call.input_key] = kind.make_forward(choice)
        applied.choices[call.signature.key] = choice
    applied.forwards = list(forwards.values())
    add_optimizer_choice(applied, torch_optimizer, choices)
    if uses_own_kernels:
        for key, choice in choices.items():
            if launch := kernel.read_key(key):
                applied.kernels[launch] = applied.choices[key] = choice
    threads = choices.get(threads_key, {}).get("threads")
    if isinstance(threads, int) and 1 <= threads <= MAX_THREADS:
        applied.threads_before, applied.threads = torch.get_num_threads(), int(threads)
        applied.choices[threads_key] = choices[threads_key]
    applied.switch(True)
    return applied


def add_optimizer_choice(
    applied: AppliedChoices, torch_optimizer: torch.optim.Optimizer | None, choices: Mapping[str, Choice]
) -> None:
    """Add the choice for the optimizer if there is one that differs from the default."""
    signature = optimizer.describe(torch_optimizer) if torch_optimizer is not None else None
    if signature is None or signature.key not in choices:
        return
    choice = choices[signature.key]
    space = optimizer.make_space(signature, device="any")  # the variants do not depend on the device
    if dict(choice) != optimizer.DEFAULT and not space.explain_invalid(choice):
        applied.optimizer, applied.optimizer_choice = torch_optimizer, choice
        applied.choices[signature.key] = choice
