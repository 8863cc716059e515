"""Data types of the comparison: a stored tensor, a stored dump (all its tensors), a pair of tensors.

`readers/` reads dumps, align.py makes pairs, measuring.py measures them, and drift.py makes rows (rows.py) of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

INSERTED = "*"  # the counterpart's name of an operator that the compiler inserted
Array = NDArray[Any]
Role = Literal["input", "output", "grad_input", "grad_output", "parameter", "gradient", "update"]
Result = Literal["good", "bad", "flag", "refused", "new"]
MatchedBy = Literal["name", "graph", "rules", "structure", "none"]  # how the two tensors of a pair were found
Layout = tuple[str, str, tuple[int, ...]]  # left layout, right layout, shape of the original in the right's axes


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a dump: its name, its header and where its values are. With a `fault` the header may be missing."""

    op: str  # the operator's or module's name: layer3.0.conv2
    op_type: str = ""  # Conv2d, BatchNorm; "" if the dump does not say
    role: Role = "output"
    index: int = 0  # number of the input or output, from 0
    order: int = 0  # position in execution order within its step; equal for all tensors of one call
    step: int = 0
    rank: int = 0
    dtype: str = ""  # as it was on the device: float32, float16, bfloat16, int64, bool …
    shape: tuple[int, ...] = ()
    path: Path | None = None  # None: only `statistics` were dumped, or there is a fault
    member: str = ""  # key within the file, for .npz and .safetensors
    call: int = 0  # number among the calls of this operator within the step, from 0
    layout: str = ""  # NCHW, NHWC, NC1HWC0 …, if the graph or the dump says it
    statistics: Mapping[str, float] | None = None  # min max mean std norm nan inf, if the dump has them
    fault: str = ""  # why the tensor cannot be read
    parameter: str = ""  # name within the module of a parameter, or of its gradient or update: weight, running_mean
    crc32: int | None = None  # of the file, as a viaduct index states it; 0: not stated; None: no viaduct index

    @property
    def tensor_index(self) -> str:
        """Return the tensor's name as the result table shows it: conv1:output:0."""
        return f"{self.op}:{self.role}:{self.index}"


@dataclass(frozen=True, slots=True)
class StoredDump:
    """All tensors of one dump: one side of a comparison."""

    path: Path
    kind: str  # of the dump, by the tool that wrote it: viaduct, rehearsal, npu, tfdbg, msprobe, folder
    tensors: tuple[StoredTensor, ...]
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # operator -> the operators that feed it
    notes: tuple[str, ...] = ()  # for the user: name collisions, files that were left out
    settings: Mapping[str, str] = field(default_factory=dict)  # device, precision, mode, deterministic, seed, script …


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor of the left side and its counterpart on the right.

    A tensor without a partner has `matched_by` "none" and a `reason`: for example, the compiler inserted the operator
    or fused it away (shown as *), or the other side does not have it.
    """

    group: int  # the Index column: rows of one fused group share it
    left: StoredTensor | None
    right: StoredTensor | None
    left_op: str  # as shown: names of a split operator are joined by commas; "*" for none
    right_op: str
    matched_by: MatchedBy
    confidence: float = 1.0  # below 1 only for structure
    layout: Layout | None = None
    reason: str = ""
