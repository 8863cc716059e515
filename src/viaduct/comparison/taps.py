"""Looks into a compiled network without taking it apart.

torch.compile fuses modules away, and hooks that Python runs would break its graph at every module. Instead each hook
leaves one operator in the graph, `viaduct::tap`, which hands its tensor over and returns nothing. To the compiler it is
opaque and has an effect that must stay in order: kernels before and behind it are fused as they would be, but for the
tensor that must exist in memory. Gradients are tapped in the backward graph by an identity with a backward of its own.

What cannot be seen in a compiled graph, who feeds whom and which tensors a module hands on unchanged, is taken from one
pass of a copy that runs as written.
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

Marks: TypeAlias = tuple[int, int, tuple[int, ...]]  # tags of values and gradients, and which gradients have no tap
Meaning: TypeAlias = tuple[str, str, Role, int]  # operator, its type, role, index
MANY = 8  # tensors that a module is given or returns; more are left alone
_LISTENERS: list[Callable[[int, Tensor], None]] = []


# torch 2.4 cannot infer the schema from annotations that are text.
@torch.library.custom_op("viaduct::tap", mutates_args=(), schema="(Tensor tensor, SymInt tag) -> ()")
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
        self.known = Survey({}, frozenset(), frozenset())
        self._taken: dict[str, list[Any]] = {}
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
        if not self.runs:
            self.known = survey_of(self.network, args)
        self.runs += 1
        with self.installed():
            return self._compiled(*args)

    @contextmanager
    def installed(self) -> Iterator[None]:
        handles: list[Any] = []
        for module, op in self.names.items():
            kind = type(module).__name__
            inputs, outputs = self.marks(op, kind, "input", "grad_input"), self.marks(op, kind, "output", "grad_output")
            taken, written = self._taken.setdefault(op, []), self.known.overwritten(op)
            handles.append(module.register_forward_pre_hook(partial(before, inputs, taken if written else None)))
            handles.append(module.register_forward_hook(partial(after, outputs, taken, written)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for left in self._taken.values():
                left.clear()  # of a pass that ended in an exception

    def marks(self, op: str, kind: str, role: Role, gradient: Role) -> Marks:
        tags = (self.base(op, kind, wanted) if self.plan.wants(op, wanted) else -1 for wanted in (role, gradient))
        return *tags, self.known.untold(op, gradient)  # type: ignore[return-value]


def before(marks: Marks, taken: list[Any] | None, module: nn.Module, args: Any) -> Any:
    if taken is not None:
        taken.append(args)
    return tapped(args, *marks)


def after(marks: Marks, taken: list[Any], written: tuple[int, ...], module: nn.Module, args: Any, output: Any) -> Any:
    several = type(output) is tuple
    outputs = output if several else (output,)
    passed = tapped(outputs, *marks)
    if written:
        write_back(taken.pop(), args, written, outputs, passed)
    return passed if several else passed[0]


def write_back(taken: Any, args: Any, written: tuple[int, ...], outputs: Any, passed: Any) -> None:
    """A module that works in place has worked on a copy that its tap has made: what it was given must change, too."""
    number = 0
    for original, copied in zip(taken, args, strict=True):
        if isinstance(original, Tensor):
            if number in written and original is not copied:
                same = [made for output, made in zip(outputs, passed, strict=True) if output is copied]
                original.copy_(same[0] if same else copied)
            number += 1


def tapped(tensors: Any, tag: int, gradient_tag: int, untold: tuple[int, ...]) -> Any:
    """The same tuple, its tensors tapped; a tag below 0 is none. A tensor that is in it twice has one gradient, as for
    autograd. Traced by the compiler: plain loops only."""
    passed: list[Any] = []
    number = 0
    for place, item in enumerate(tensors):
        if isinstance(item, Tensor) and number < MANY:
            if tag >= 0:
                torch.ops.viaduct.tap(item, tag + number)
            if gradient_tag >= 0 and item.requires_grad:
                same = [made for other, made in zip(tensors[:place], passed, strict=True) if other is item]
                if same:
                    item = same[0]
                elif number not in untold:
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
        return {**self.taps.known.edges, **self._recorded}

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


@dataclass(frozen=True)
class Survey:
    """What a network tells of itself when it runs as written."""

    edges: dict[str, dict[str, None]]
    mixed: frozenset[tuple[str, Role, int]]
    written: frozenset[tuple[str, int]]

    def untold(self, op: str, role: Role) -> tuple[int, ...]:
        """Gradients that a tap could tell and autograd cannot: there would be nothing to compare them with."""
        return tuple(number for number in range(MANY) if (op, role, number) in self.mixed)

    def overwritten(self, op: str) -> tuple[int, ...]:
        return tuple(number for number in range(MANY) if (op, number) in self.written)


def survey_of(network: nn.Module, args: tuple[Tensor, ...]) -> Survey:
    """From a pass of two samples through a copy; random numbers are put back."""
    twin = copy.deepcopy(network)
    watch = ModuleWatch(Capture(Plan(Steps(()), only=Only(("",))), None))
    watch.watch(names_in(twin))
    cards = [args[0].device.index or 0] if args[0].device.type == "cuda" else []
    with torch.random.fork_rng(cards), torch.enable_grad():
        twin(*(tensor[:2] for tensor in args))
    watch.close()
    return Survey(watch.edges, frozenset(watch.untold), frozenset(watch.overwritten))
