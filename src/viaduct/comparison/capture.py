"""The tensors that are recorded during a dumped step: entries of its index, and copies for the writer.

A copy is made at once, since the next operator may write into the same memory. A tensor that is recorded twice without
a write that autograd counts, as one module's output and the next one's input, is stored once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.weak import TensorWeakRef

from viaduct.comparison import naming, tensor_statistics
from viaduct.comparison.dump_options import Level, Mode
from viaduct.comparison.index import Entry, Statistics
from viaduct.comparison.naming import ALL_OPERATORS, FileNames, NamePatterns, Steps
from viaduct.comparison.records import Role
from viaduct.comparison.writer import Writer

ALWAYS_DUMPED: tuple[Role, ...] = ("parameter", "gradient", "update")
ROLES_OF_MODE: Mapping[Mode, tuple[Role, ...]] = {  # besides ALWAYS_DUMPED
    "input": ("input", "grad_output"),  # the inputs of an operator, forward and backward
    "output": ("output", "grad_input"),
    "all": ("input", "output", "grad_input", "grad_output"),
}
BITS_DTYPES = {1: torch.uint8, 2: torch.int16}  # by element size: integers for the bits of floats that NumPy lacks


@dataclass
class DumpPlan:
    """The steps, roles and operators to dump."""

    steps: Steps
    mode: Mode = "all"
    only: NamePatterns = ALL_OPERATORS
    level: Level = "module"
    statistics_only: bool = False
    seen_names: set[str] = field(default_factory=set, compare=False)  # filled by `selects` if `only` has patterns

    def selects(self, op: str, role: Role) -> bool:
        """Remember the operator's name, and return True if its tensors of this role are dumped."""
        if self.only.patterns:
            self.seen_names.add(op)
        return (role in ALWAYS_DUMPED or role in ROLES_OF_MODE[self.mode]) and op in self.only

    def explain_no_match(self) -> str:
        """Return a message if the patterns matched none of the names so far; empty if one matched or there was none."""
        if not self.seen_names or any(name in self.only for name in self.seen_names):
            return ""
        return naming.explain_no_match(self.only.patterns, self.seen_names)


class Capture:
    """Collects the tensors of one step. Without a writer, or if the plan says so, only statistics are recorded."""

    def __init__(self, plan: DumpPlan, writer: Writer | None) -> None:
        self.plan, self.writer = plan, writer
        self.entries: list[Entry] = []
        self._local = threading.local()  # holds the value of the property `is_busy` for each thread
        self._last_order = 0
        self._names = FileNames()
        self._stored: dict[int, tuple[TensorWeakRef, int, Entry]] = {}  # by id: tensor, its version, its entry
        self._repeated: list[tuple[Entry, Entry]] = []  # an entry, and the entry that stored the same tensor before
        self._lock = threading.RLock()  # gradients come from one thread per device

    def next_order(self) -> int:
        """Return the next position in execution order."""
        with self._lock:
            self._last_order += 1
            return self._last_order

    def add(self, entry: Entry, tensor: Tensor, owned: bool = False, always_store: bool = False) -> Entry:
        """Complete the entry of one tensor, and return it; copy the tensor for the writer, or compute its statistics.

        `owned`: nobody else will write to it, so no copy is needed. `always_store`: even if it was stored before.
        """
        with self._lock, self.suspend_watching():
            entry.dtype, entry.shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
            self.entries.append(entry)
            if reason := explain_unreadable(tensor):
                entry.fault = reason
            elif (stored_before := None if always_store else self._find_stored(tensor)) is not None:
                self._repeated.append((entry, stored_before))
            else:
                self._store(entry, tensor, owned)
                if not tensor.is_inference():
                    self._stored[id(tensor)] = (TensorWeakRef(tensor), tensor._version, entry)
        return entry

    def _store(self, entry: Entry, tensor: Tensor, owned: bool) -> None:
        if self.plan.statistics_only or self.writer is None:
            entry.statistics.update(tensor_statistics.summarise_tensor(tensor))
            return
        call = f".{entry.call}" if entry.call else ""
        slot = f"{entry.parameter}.{entry.role}" if entry.parameter else f"{entry.role}.{entry.index}"
        entry.file = self._names.make_unique(f"{entry.op}.{slot}{call}")
        self.writer.put(entry, tensor.numel() * tensor.element_size(), snapshot(tensor, owned))

    def _find_stored(self, tensor: Tensor) -> Entry | None:
        """Return the entry of the same tensor if its version, which counts writes, is the same; else None."""
        if tensor.is_inference() or id(tensor) not in self._stored:
            return None
        reference, version, entry = self._stored[id(tensor)]
        return entry if reference() is tensor and version == tensor._version else None

    @contextmanager
    def suspend_watching(self) -> Iterator[None]:
        """Suspend recording and gradients on this thread while copies are made."""
        before, self._local.is_busy = self.is_busy, True
        try:
            with torch.no_grad():
                yield
        finally:
            self._local.is_busy = before

    @property
    def is_busy(self) -> bool:
        """Return True while this thread makes copies, whose operators are not recorded."""
        return getattr(self._local, "is_busy", False)

    def finish_entries(self) -> list[Entry]:
        """Return all entries in execution order. Call it after the writer has finished: it fills in checksums."""
        for entry, stored_before in self._repeated:
            entry.file, entry.bytes, entry.crc32 = stored_before.file, stored_before.bytes, stored_before.crc32
            entry.statistics = Statistics(stored_before.statistics)
        return sorted(self.entries, key=lambda entry: entry.order)


def explain_unreadable(tensor: Tensor) -> str:
    """Return why a tensor cannot be stored as a plain array; empty if it can."""
    if tensor.layout is not torch.strided:
        return f"its layout is {str(tensor.layout).removeprefix('torch.')}"
    if tensor.device.type == "meta":
        return "it has no data (device meta)"
    if tensor.is_nested or tensor.is_quantized:
        return "it is quantized" if tensor.is_quantized else "it is nested"
    return f"it is a {type(tensor).__name__}" if is_traceable_wrapper_subclass(tensor) else ""


def snapshot(tensor: Tensor, owned: bool) -> Callable[[], npt.NDArray[Any]]:
    """Copy a tensor, from a CUDA device asynchronously; return a function that returns the copy as a C-ordered array.

    `owned`: nobody else will write to it, so a contiguous tensor on the CPU is not copied.
    """
    source = view_bits(tensor.detach().resolve_conj().resolve_neg())
    is_bfloat16 = tensor.dtype == torch.bfloat16
    if source.device.type == "cpu":
        copied = source.contiguous() if owned else torch.empty(source.shape, dtype=source.dtype).copy_(source)
        return partial(as_array, copied, is_bfloat16)
    if source.device.type == "cuda":
        host = torch.empty(source.shape, dtype=source.dtype, pin_memory=True).copy_(source, non_blocking=True)
        done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(source.device))
        return partial(as_array, host, is_bfloat16, done.synchronize)
    return partial(as_array, source.cpu().contiguous(), is_bfloat16)


def view_bits(tensor: Tensor) -> Tensor:
    """Return bfloat16 and eight-bit floats, which NumPy lacks, as integers of the same bits; others unchanged."""
    if tensor.dtype == torch.bfloat16 or str(tensor.dtype).startswith("torch.float8"):
        return tensor.view(BITS_DTYPES[tensor.element_size()])
    return tensor


def as_array(tensor: Tensor, is_bfloat16: bool, wait: Callable[[], None] = lambda: None) -> npt.NDArray[Any]:
    """Wait for the copy and return it as a NumPy array, bfloat16 as uint16 (`view_bits` returned it as int16)."""
    wait()
    array = tensor.numpy()
    return array.view(np.uint16) if is_bfloat16 else array


def find_tensors(value: Any) -> list[Tensor]:
    """Return the tensors in nested tuples, lists, mappings and dataclasses, in order; other objects are skipped."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in find_tensors(item)]
    inner = getattr(value, "__dataclass_fields__", None)
    return find_tensors([getattr(value, name, None) for name in inner]) if inner and not isinstance(value, type) else []
