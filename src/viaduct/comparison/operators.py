"""Recorder of every operator of a step, forward and backward: the aten calls that modules and autograd make.

An operator is named after its module, its device-independent aten name and the number of the call:
`layer1.0.conv1.convolution.0`. An operator of the backward pass belongs to the module whose forward pass created its
node of autograd's graph. Views, allocations and fused optimizer kernels are not recorded: an operator that reads a view
counts as reading from the operator that computed the memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from viaduct.comparison.capture import Capture, find_tensors
from viaduct.comparison.index import Entry
from viaduct.comparison.modules import HookRecorder
from viaduct.comparison.naming import SHARED_INPUTS, SHARED_OUTPUTS, normalise_operator, order_inputs
from viaduct.comparison.records import Role

# Operators that are not recorded: memory, bookkeeping, copies without change, optimizer kernels.
UNRECORDED = {"detach", "alias", "lift_fresh", "empty_like", "new_empty", "new_empty_strided", "is_same_size", "set"}
UNRECORDED_PREFIXES = ("empty", "_local_scalar", "_foreach", "_fused", "_amp_foreach", "record_stream", "resize")
OUTSIDE = "outside"  # replaces the module's name in operators that run in no module


class OperatorRecorder(HookRecorder):
    """Recorder with a dispatch mode, which sees the operators, and hooks, which track the running module."""

    def __init__(self, capture: Capture, evaluations: bool = True) -> None:
        super().__init__(capture, evaluations)
        self._stack: list[tuple[str, int]] = []  # running modules, each with autograd's sequence number at its start
        self._spans: list[tuple[int, int, str]] = []  # sequence numbers at a module's start and end, and its name
        self._producers: dict[int, str] = {}  # by storage: the operator that wrote to it last
        mode: Any = OperatorMode(self)
        self._mode: Any = mode
        mode.__enter__()

    def add_recorded(self, op: str, tensor: Tensor) -> None:
        """Add the edge of a tensor that the caller recorded under the name `op`."""
        producer = self._producers.get(make_storage_key(tensor))
        self.edges[op] = {producer: None} if producer is not None else {}

    def close(self) -> None:
        """Leave the dispatch mode and remove the hooks."""
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)
        super().close()

    def on_enter(self, name: str, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        """Note that a module runs, and autograd's sequence number at its start."""
        self._stack.append((name, read_sequence_number()))

    def on_exit(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Record the span of autograd's sequence numbers of a module that has ended."""
        while self._stack:
            popped, start = self._stack.pop()
            if popped == name:
                self._spans.append((start, read_sequence_number(), name))
                return

    def find_enclosing_module(self) -> str:
        """Return the running module, or in the backward pass the module that created the current node."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self._stack[-1][0] if self._stack else OUTSIDE
        number = node._sequence_nr()
        # Inner modules end before outer ones, so the first matching span is the innermost.
        return next((name for start, end, name in self._spans if start <= number < end), OUTSIDE)

    def run_and_record(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator and record its inputs and outputs."""
        kind = normalise_operator(function.name())
        is_training = torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1  # the latter: backward pass
        if self.paused or self.capture.is_busy or not (self.evaluations or is_training):
            return function(*args, **kwargs)
        inputs = find_tensors([args, kwargs])
        if not is_recorded(function, kind):
            result = function(*args, **kwargs)
            self.propagate_producers(inputs, find_tensors(result))
            return result
        op = self.name_operator(kind)
        dumped = order_inputs(function.name(), inputs)[: SHARED_INPUTS.get(kind)]
        entries = self.record(op, kind, "input", dumped)
        self.edges[op] = dict.fromkeys(self.list_producers(inputs))
        result = function(*args, **kwargs)
        written = find_tensors(result) or inputs[:1]  # an operator that returns nothing writes to its first input
        entries += self.record(op, kind, "output", written[: SHARED_OUTPUTS.get(kind)])
        self._producers.update(dict.fromkeys(map(make_storage_key, written), op))
        order = self.capture.next_order()
        for entry in entries:
            entry.order = order
        return result

    def name_operator(self, kind: str) -> str:
        """Return the operator's name: module, kind and number."""
        op = f"{self.find_enclosing_module()}.{kind}"
        number = self._count[op]
        self._count[op] += 1
        return f"{op}.{number}"

    def record(self, op: str, kind: str, role: Role, tensors: list[Tensor]) -> list[Entry]:
        """Record tensors; the caller sets their order.

        An output is stored in any case: an in-place operator has not raised its version yet.
        """
        if not self.capture.plan.selects(op, role):
            return []
        return [
            self.capture.add(Entry(op, kind, role, index, order=0), tensor, always_store=role == "output")
            for index, tensor in enumerate(tensors)
            if tensor.device.type != "meta"
        ]

    def list_producers(self, tensors: list[Tensor]) -> list[str]:
        """Return the operators that wrote last to the memory of some tensors."""
        return [self._producers[key] for key in map(make_storage_key, tensors) if key in self._producers]

    def propagate_producers(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Give views and plain copies the producer of their only input, and no producer to other new memory."""
        source = next(iter(self.list_producers(inputs)), None)
        input_keys = {make_storage_key(tensor) for tensor in inputs}
        for key in (make_storage_key(tensor) for tensor in outputs):
            if key not in input_keys:
                self._producers.pop(key, None)
                if source is not None and len(inputs) == 1:
                    self._producers[key] = source


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that calls `OperatorRecorder.run_and_record` for every operator."""

    def __init__(self, recorder: OperatorRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder.run_and_record(func, args, kwargs or {})


def is_recorded(function: Any, kind: str) -> bool:
    """Return False for views, allocation and bookkeeping, and for operators outside aten."""
    if kind in UNRECORDED or kind.startswith(UNRECORDED_PREFIXES) or function.namespace != "aten":
        return False
    return not getattr(function, "is_view", False)


def make_storage_key(tensor: Tensor) -> int:
    """Return an identity of a tensor's memory, which views and in-place results share."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


def read_sequence_number() -> int:
    return int(torch._C._autograd._get_sequence_nr())
