"""Looks into a compiled network without taking it apart.

torch.compile fuses modules away, and hooks that Python runs would break its graph at every module. Instead each hook
leaves one operator in the graph, `viaduct::tap`, which hands its tensor over and returns nothing. To the compiler it is
opaque and has an effect that must stay in order: kernels before and behind it are fused as they would be, but for the
tensor that must exist in memory. Gradients are tapped in the backward graph by an identity with a backward of its own.

What cannot be seen in a compiled graph, who feeds whom, is taken from one pass of a copy that runs as written.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from viaduct.comparison.capture import Capture, Plan
from viaduct.comparison.index import Entry
from viaduct.comparison.modules import ModuleWatch, names_in
from viaduct.comparison.naming import ROOT, Only, Steps
from viaduct.comparison.tensors import Role

Meaning: TypeAlias = tuple[str, str, Role, int]  # operator, its type, role, index
MANY = 8  # tensors that a module is given or returns; more are left alone
_LISTENERS: list[Callable[[int, Tensor], None]] = []


@torch.library.custom_op("viaduct::tap", mutates_args=())
def tap(tensor: Tensor, tag: int) -> None:
    for listen in _LISTENERS:
        listen(tag, tensor)


@tap.register_fake
def _(tensor: Tensor, tag: int) -> None:
    return None


class GradientTap(torch.autograd.Function):
    """The tensor as it is; its gradient is tapped. Not a view: what follows may work in place."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, tag: int) -> Tensor:
        ctx.tag = tag
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        torch.ops.viaduct.tap(gradients[0], ctx.tag)
        return gradients[0], None


def keep_in_order() -> None:
    """Tell the compiler that a tap must stay, and stay between the taps before and behind it."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _register_effectful_op(torch.ops.viaduct.tap.default, _EffectType.ORDERED)


class Taps:
    """The taps of one network, for all steps that are dumped: compiled code keeps their numbers."""

    def __init__(self, network: nn.Module, plan: Plan) -> None:
        keep_in_order()
        self.network, self.plan = network, plan
        self.names = names_in(network)
        self.meanings: list[Meaning] = []
        self.edges: dict[str, dict[str, None]] | None = None
        self.runs = 0
        self._bases: dict[tuple[str, Role], int] = {}
        # A function of its own: compiled code is kept by function, and the network's own must know nothing of taps.
        self._compiled: Any = torch.compile(lambda *args: network(*args), dynamic=False)

    def base(self, op: str, kind: str, role: Role) -> int:
        if (op, role) not in self._bases:
            self._bases[op, role] = len(self.meanings)
            self.meanings += [(op, kind, role, index) for index in range(MANY)]
        return self._bases[op, role]

    def run(self, *args: Tensor) -> Any:
        """One pass of the compiled network with taps."""
        if self.edges is None:
            self.edges = edges_of(self.network, args)
        self.runs += 1
        with self.installed():
            return self._compiled(*args)

    @contextmanager
    def installed(self) -> Iterator[None]:
        handles: list[Any] = []
        for module, op in self.names.items():
            inner = partial(self.base, op, type(module).__name__)
            wants = partial(self.plan.wants, op)
            taken = (inner("input") if wants("input") else -1, inner("grad_input") if wants("grad_input") else -1)
            given = (inner("output") if wants("output") else -1, inner("grad_output") if wants("grad_output") else -1)
            handles.append(module.register_forward_pre_hook(partial(before, *taken)))
            handles.append(module.register_forward_hook(partial(after, *given)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def before(tag: int, gradient_tag: int, module: nn.Module, args: Any) -> Any:
    return tapped(args, tag, gradient_tag)


def after(tag: int, gradient_tag: int, module: nn.Module, args: Any, output: Any) -> Any:
    if isinstance(output, Tensor):
        return tapped((output,), tag, gradient_tag)[0]
    return tapped(output, tag, gradient_tag) if isinstance(output, tuple) else output


def tapped(tensors: Any, tag: int, gradient_tag: int) -> Any:
    """The same tuple, its tensors tapped; a tag below 0 is none. Traced by the compiler: plain loops only."""
    passed = []
    number = 0
    for item in tensors:
        if isinstance(item, Tensor) and number < MANY:
            if tag >= 0:
                torch.ops.viaduct.tap(item, tag + number)
            if gradient_tag >= 0 and item.requires_grad:
                item = GradientTap.apply(item, gradient_tag + number)  # type: ignore[no-untyped-call]
            number += 1
        passed.append(item)
    return tuple(passed)


class TapWatch:
    """Listens to the taps during one step; stands where ModuleWatch does for a network that is not compiled."""

    def __init__(self, capture: Capture, taps: Taps) -> None:
        self.capture, self.taps = capture, taps
        self.paused = False
        self._recorded: dict[str, dict[str, None]] = {}
        self._count: Counter[int] = Counter()
        self._heard: list[Heard] = []
        _LISTENERS.append(self.heard)

    @property
    def edges(self) -> dict[str, dict[str, None]]:
        return {**(self.taps.edges or {}), **self._recorded}

    def watch(self, names: dict[nn.Module, str]) -> None:
        """The taps are in the network when it runs."""

    def before(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None: ...
    def after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None: ...

    def recorded(self, op: str, tensor: Tensor) -> None:
        """A tensor that was handed over by hand: with a gradient it was made by the network."""
        self._recorded[op] = {ROOT: None} if tensor.requires_grad else {}

    def heard(self, tag: int, tensor: Tensor) -> None:
        op, kind, role, index = self.taps.meanings[tag]
        # Compiled code writes new values into memory that it has done with, and says nothing: never "seen before".
        entry = self.capture.add(Entry(op, kind, role, index, 0, self._count[tag]), tensor, anew=True)
        self._count[tag] += 1
        self._heard.append(Heard(entry, self.capture.tick(), tag, self.taps.runs))

    def close(self) -> None:
        if self.heard in _LISTENERS:
            _LISTENERS.remove(self.heard)
        number_backward(self._heard)
        completed: dict[tuple[str, int, bool], int] = {}
        for heard in self._heard:
            completed[heard.call] = heard.tick
        for heard in self._heard:
            heard.entry.order = completed[heard.call]
        self._heard.clear()


@dataclass(frozen=True)
class Heard:
    """One tensor that came from a tap."""

    entry: Entry
    tick: int
    tag: int
    run: int  # the how-manieth pass of the network it belongs to

    @property
    def backward(self) -> bool:
        return self.entry.role.startswith("grad")

    @property
    def call(self) -> tuple[str, int, bool]:
        return self.entry.op, self.entry.call, self.backward


def number_backward(heard: list[Heard]) -> None:
    """Of a module that is called twice in a pass, the gradients of the second call come first."""
    groups: dict[tuple[int, int], list[Heard]] = {}
    for one in heard:
        if one.backward:
            groups.setdefault((one.tag, one.run), []).append(one)
    for group in groups.values():
        calls = [one.entry.call for one in group]
        for one, call in zip(group, reversed(calls), strict=True):
            one.entry.call = call


def edges_of(network: nn.Module, args: tuple[Tensor, ...]) -> dict[str, dict[str, None]]:
    """Who feeds whom, from a pass of two samples through a copy; random numbers are put back."""
    twin = copy.deepcopy(network)
    watch = ModuleWatch(Capture(Plan(Steps(()), only=Only(("",))), None))
    watch.watch(names_in(twin))
    cards = [args[0].device.index or 0] if args[0].device.type == "cuda" else []
    with torch.random.fork_rng(cards), torch.enable_grad():
        twin(*(tensor[:2] for tensor in args))
    watch.close()
    return watch.edges
