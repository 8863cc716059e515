"""Taps: operators that read the tensors of a compiled network without breaking its graph.

torch.compile fuses modules away, and ordinary hooks would break its graph at every module. Instead each hook leaves one
operator in the graph, `viaduct::tap`, which passes its tensor to the listeners and returns nothing. The compiler sees
an opaque operator with an effect: it still fuses kernels before and after it, but the tapped tensor must exist in
memory. Gradients are tapped in the backward graph by an identity with its own backward function.

A compiled graph does not show which module reads from which, which inputs a module writes to, and of which tensors
autograd has one gradient for several uses (modules.py). A survey finds them: one eager pass of a copy of the network.
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

from viaduct.comparison.capture import Capture, DumpPlan
from viaduct.comparison.index import Entry
from viaduct.comparison.modules import ModuleRecorder, name_modules
from viaduct.comparison.naming import ROOT_MODULE, NamePatterns, Steps
from viaduct.comparison.records import Role

# A tag is the number of a tapped tensor, an index into Taps.tapped. These are `tap_tensors`' arguments after the first.
Tags: TypeAlias = tuple[int, int, tuple[int, ...]]
TappedTensor: TypeAlias = tuple[str, str, Role, int]  # operator, its type, role, index
# Inputs or outputs of a module that are tapped: tensors passed or returned directly or in a tuple. Further ones, and
# those in keyword arguments, lists and mappings, are not dumped.
MAX_TENSORS = 8
_LISTENERS: list[Callable[[int, Tensor], None]] = []  # called with the tag and the tensor of every tap


# torch 2.4 cannot infer the schema from string annotations.
@torch.library.custom_op("viaduct::tap", mutates_args=(), schema="(Tensor tensor, SymInt tag) -> ()")
def tap(tensor: Tensor, tag: int) -> None:
    """Hand a tensor to the listeners."""
    for listen in _LISTENERS:
        listen(tag, tensor)


@tap.register_fake
def _(tensor: Tensor, tag: int) -> None:
    return None


class GradientTap(torch.autograd.Function):
    """Identity whose gradient is tapped. It returns a copy, since the next operator may work in place."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, tag: int) -> Tensor:
        ctx.tag = tag
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        torch.ops.viaduct.tap(gradients[0], ctx.tag)
        return gradients[0], None


def register_tap_effect() -> None:
    """Register the tap's effect, so that the compiler neither removes nor reorders taps."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _register_effectful_op(torch.ops.viaduct.tap.default, _EffectType.ORDERED)


class Taps:
    """The taps of one network, for all dumped steps: the tags are constants in the compiled code."""

    def __init__(self, network: nn.Module, plan: DumpPlan) -> None:
        register_tap_effect()
        self.network, self.plan = network, plan
        self.names = name_modules(network)
        self.tapped: list[TappedTensor] = []  # by tag
        self.survey = Survey({}, frozenset(), frozenset())  # `run` replaces it before the first pass
        # By module: the untapped arguments of its running calls, if it overwrites an input.
        self._originals: dict[str, list[Any]] = {}
        self.runs = 0  # passes of the tapped network so far
        self._first_tags: dict[tuple[str, Role], int] = {}  # module and role -> first tag
        # A new function, since compiled code is cached by function, and the network's own code must have no taps.
        self._compiled: Any = torch.compile(lambda *args: network(*args), dynamic=False)

    def allocate_tags(self, op: str, kind: str, role: Role) -> int:
        """Return the first of the MAX_TENSORS tags of an operator's tensors of one role; reserve them if new."""
        if (op, role) not in self._first_tags:
            self._first_tags[op, role] = len(self.tapped)
            self.tapped += [(op, kind, role, index) for index in range(MAX_TENSORS)]
        return self._first_tags[op, role]

    def run(self, *args: Tensor) -> Any:
        """Run the compiled network with taps once; before the first run the network is surveyed."""
        if not self.runs:
            self.survey = survey_network(self.network, args)
        self.runs += 1
        with self.install():
            return self._compiled(*args)

    @contextmanager
    def install(self) -> Iterator[None]:
        """Register the taps' hooks for one pass."""
        handles: list[Any] = []
        for module, op in self.names.items():
            kind = type(module).__name__
            inputs = self.make_tags(op, kind, "input", "grad_input")
            outputs = self.make_tags(op, kind, "output", "grad_output")
            originals = self._originals.setdefault(op, [])
            written = tuple(index for index in range(MAX_TENSORS) if (op, index) in self.survey.overwritten)
            handles.append(
                module.register_forward_pre_hook(partial(tap_inputs, inputs, originals if written else None))
            )
            handles.append(module.register_forward_hook(partial(tap_outputs, outputs, originals, written)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for arguments in self._originals.values():
                arguments.clear()  # not empty if the pass ended in an exception

    def make_tags(self, op: str, kind: str, role: Role, gradient: Role) -> Tags:
        """Return the first tags of a module's values and gradients (-1: no taps), and its ambiguous gradients."""
        tags = (self.allocate_tags(op, kind, r) if self.plan.selects(op, r) else -1 for r in (role, gradient))
        ambiguous = (index for index in range(MAX_TENSORS) if (op, gradient, index) in self.survey.ambiguous)
        return *tags, tuple(ambiguous)  # type: ignore[return-value]


def tap_inputs(tags: Tags, originals: list[Any] | None, module: nn.Module, args: Any) -> Any:
    """Forward pre-hook: return the tapped arguments, and append the untapped ones to `originals` if it is given."""
    if originals is not None:
        originals.append(args)
    return tap_tensors(args, *tags)


def tap_outputs(
    tags: Tags, originals: list[Any], written: tuple[int, ...], module: nn.Module, args: Any, output: Any
) -> Any:
    """Forward hook: return the tapped outputs. `written`: numbers of the arguments that the module overwrites."""
    is_tuple = type(output) is tuple
    outputs = output if is_tuple else (output,)
    passed = tap_tensors(outputs, *tags)
    if written:
        write_back(originals.pop(), args, written, outputs, passed)
    return passed if is_tuple else passed[0]


def write_back(originals: Any, args: Any, written: tuple[int, ...], outputs: Any, passed: Any) -> None:
    """Copy what an in-place module wrote to its tapped copies (`args`) back to the original arguments.

    An output that is such a copy is copied in its tapped form (of `passed`), so that its gradient is tapped, too.
    """
    number = 0
    for original, copied in zip(originals, args, strict=True):
        if isinstance(original, Tensor):
            if number in written and original is not copied:
                same = [tapped for output, tapped in zip(outputs, passed, strict=True) if output is copied]
                original.copy_(same[0] if same else copied)
            number += 1


def tap_tensors(tensors: Any, tag: int, gradient_tag: int, ambiguous: tuple[int, ...]) -> Any:
    """Return the same tuple with its first MAX_TENSORS tensors tapped; a tag below 0 means no tap.

    A tensor that occurs twice has one gradient, as in autograd. `ambiguous`: tensors whose gradients are not tapped.
    The compiler traces this function, so it has plain loops only.
    """
    passed: list[Any] = []
    number = 0
    for position, item in enumerate(tensors):
        if isinstance(item, Tensor) and number < MAX_TENSORS:
            if tag >= 0:
                torch.ops.viaduct.tap(item, tag + number)
            if gradient_tag >= 0 and item.requires_grad:
                same = [tapped for other, tapped in zip(tensors[:position], passed, strict=True) if other is item]
                if same:
                    item = same[0]
                elif number not in ambiguous:
                    item = GradientTap.apply(item, gradient_tag + number)  # type: ignore[no-untyped-call]
            number += 1
        passed.append(item)
    return tuple(passed)


class TapRecorder:
    """Recorder of the tapped tensors of one step.

    It has the methods of HookRecorder. Some do nothing, since the taps are in the network when it runs.
    """

    def __init__(self, capture: Capture, taps: Taps) -> None:
        self.capture, self.taps = capture, taps
        self.paused = False
        self._recorded: dict[str, dict[str, None]] = {}
        self._count: Counter[int] = Counter()
        self._records: list[TapRecord] = []
        _LISTENERS.append(self.receive)

    @property
    def edges(self) -> dict[str, dict[str, None]]:
        return {**self.taps.survey.edges, **self._recorded}

    def watch(self, names: dict[nn.Module, str]) -> None: ...
    def on_enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None: ...
    def on_exit(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None: ...

    def add_recorded(self, op: str, tensor: Tensor) -> None:
        """Add an edge to a tensor that the caller recorded: from the network if it requires a gradient, else none."""
        self._recorded[op] = {ROOT_MODULE: None} if tensor.requires_grad else {}

    def receive(self, tag: int, tensor: Tensor) -> None:
        """Record the tensor of a tap."""
        op, kind, role, index = self.taps.tapped[tag]
        # Compiled code reuses memory without raising the tensor's version, so every tensor is stored. `close` sets its
        # order. Its call is the number of tensors that had this tag before.
        entry = Entry(op, kind, role, index, order=0, call=self._count[tag])
        self.capture.add(entry, tensor, always_store=True)
        self._count[tag] += 1
        self._records.append(TapRecord(entry, self.capture.next_order(), tag, self.taps.runs))

    def close(self) -> None:
        """Stop listening; give all tensors of a call the order of the last one, forward and backward apart."""
        if self.receive in _LISTENERS:
            _LISTENERS.remove(self.receive)
        number_backward(self._records)
        last_order: dict[tuple[str, int, bool], int] = {}
        for record in self._records:
            last_order[record.call] = record.order
        for record in self._records:
            record.entry.order = last_order[record.call]
        self._records.clear()


@dataclass(frozen=True)
class TapRecord:
    """One tensor that came from a tap."""

    entry: Entry
    order: int  # of arrival
    tag: int
    run: int  # number of the pass of the network, from 1

    @property
    def is_gradient(self) -> bool:
        return self.entry.role.startswith("grad")

    @property
    def call(self) -> tuple[str, int, bool]:
        return self.entry.op, self.entry.call, self.is_gradient


def number_backward(records: list[TapRecord]) -> None:
    """Number the gradients of repeated calls in one pass in reverse, since the last call's gradients come first."""
    groups: dict[tuple[int, int], list[TapRecord]] = {}
    for record in records:
        if record.is_gradient:
            groups.setdefault((record.tag, record.run), []).append(record)
    for group in groups.values():
        calls = [record.entry.call for record in group]
        for record, call in zip(group, reversed(calls), strict=True):
            record.entry.call = call


@dataclass(frozen=True)
class Survey:
    """Edges, ambiguous gradients and overwritten inputs of a network, found by running it eagerly."""

    edges: dict[str, dict[str, None]]  # module -> ordered set of the modules whose outputs it reads
    ambiguous: frozenset[tuple[str, Role, int]]  # gradients that autograd cannot separate: operator, role, index
    overwritten: frozenset[tuple[str, int]]  # inputs that an operator writes to: operator, index


def survey_network(network: nn.Module, args: tuple[Tensor, ...]) -> Survey:
    """Run the first two samples through an eager copy of the network; the random states of CPU and device are restored.

    `args`: the network's inputs, all tensors with the samples along axis 0.
    """
    twin = copy.deepcopy(network)
    # The pattern "" matches no operator, so nothing is dumped.
    recorder = ModuleRecorder(Capture(DumpPlan(Steps(()), only=NamePatterns(("",))), None))
    recorder.watch(name_modules(twin))
    device = args[0].device
    # fork_rng takes no "cpu"; it restores the CPU's state in any case.
    cards, device_type = ([], "cuda") if device.type == "cpu" else ([device.index or 0], device.type)
    with torch.random.fork_rng(cards, device_type=device_type), torch.enable_grad():
        twin(*(tensor[:2] for tensor in args))
    recorder.close()
    return Survey(recorder.edges, frozenset(recorder.ambiguous_gradients), frozenset(recorder.overwritten))
