"""Data types of the comparison: stored tensors and dumps, pairs of tensors, rows of results, and their explanation.

`readers/` reads dumps, align.py makes pairs, measuring.py measures them, drift.py makes rows of them, judge.py finds
the origin and explain.py explains it. The table, the page, the summary and the printed answer are made from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from numpy.typing import NDArray

if TYPE_CHECKING:
    from viaduct.comparison.measures import Measures

INSERTED = "*"  # the counterpart's name of an operator that the compiler inserted
Array = NDArray[Any]
Role = Literal["input", "output", "grad_input", "grad_output", "parameter", "gradient", "update"]
ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
Result = Literal["good", "bad", "flag", "refused", "new"]
MatchedBy = Literal["name", "graph", "rules", "structure", "none"]  # how the two tensors of a pair were found
Layout = tuple[str, str, tuple[int, ...]]  # left layout, right layout, shape of the original in the right's axes
RESULT_MEANINGS: dict[Result, str] = {
    "good": "within the thresholds",
    "bad": "beyond a threshold, or NaN, Inf or zeros on one side only",
    "flag": "not bad, but worth a look: the reason says why",
    "refused": "not compared: missing, damaged, empty or of another shape; never counts as good",
    "new": "has nothing to be compared with, by the graph or the rules file",
}
RESULTS: tuple[Result, ...] = tuple(RESULT_MEANINGS)
SEVERITY: tuple[Result, ...] = ("bad", "refused", "flag", "new", "good")  # the worst first
OriginKind = Literal["operator", "parameter", "input"]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a dump: its name, its header and where its values are. With a `fault` the header may be missing."""

    op: str  # the operator's or module's name: layer3.0.conv2
    op_type: str = ""  # Conv2d, BatchNorm; "" if the dump does not say
    role: Role = "output"
    index: int = 0  # number of the input, output or parameter in its operator, from 0
    order: int = 0  # position in execution order within its step; equal for all tensors of one call
    step: int = 0
    rank: int = 0
    dtype: str = ""  # as it was on the device: float32, float16, bfloat16, int64, bool …
    shape: tuple[int, ...] = ()
    path: Path | None = None  # of the file; None: only `statistics` were dumped, or there is a fault
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
    kind: str  # the tool that wrote it, or folder: viaduct, rehearsal, npu, tfdbg, msprobe
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
    right_op: str  # likewise, of the originals
    matched_by: MatchedBy
    confidence: float = 1.0  # below 1 only for structure, a heuristic (structure.py)
    layout: Layout | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One pair of tensors, measured and judged. Without measures it is refused or new."""

    pair: Pair
    measures: Measures | None
    result: Result
    reason: str = ""  # the CompareFailReason column: why it is not good
    follows_from: str = ""  # of a bad row: the main origin's operator, which may explain it; nothing checks that

    @property
    def tensor(self) -> StoredTensor:
        """Return the left tensor, or the right one if the left is missing."""
        tensor = self.pair.left or self.pair.right
        if tensor is None:
            raise ValueError("a pair without either side")
        return tensor

    @property
    def op(self) -> str:
        """Return the operator's name on the left, or on the right if the left is missing."""
        return self.tensor.op

    @property
    def is_compared(self) -> bool:
        """Return True if values of both sides were judged. A refused pair may have measures, but no finite value."""
        return self.measures is not None and self.result != "refused"

    @property
    def tensor_index(self) -> str:
        return self.tensor.tensor_index


@dataclass(frozen=True, slots=True)
class Origin:
    """First divergence: an operator, parameter or network input that is bad although no input of it is.

    If the dump does not show one, it is the first bad tensor in execution order. It may also be an operator whose
    output is within the thresholds, but off by far more than rounding. `why` says so in both cases.
    """

    op: str
    kind: OriginKind
    step: int
    rank: int
    row_index: int  # in the comparison's rows: of the first tensor of the operator that differs (see `why`)
    why: str  # one sentence: what differs, and what is known about its inputs
    are_inputs_known: bool = True  # False: the inputs were not compared, so the sides may part before this operator


@dataclass(frozen=True, slots=True)
class Cause:
    """One possible cause of the origin, with its evidence."""

    name: str  # overflow, reduced precision, wrong layout …: the word in summary.json
    confidence: float = field(kw_only=True)  # 0 … 1, a heuristic; the causes of an origin are sorted by it
    evidence: str  # observations in the tensors, with numbers
    advice: str  # what to try


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An operator near the origin, for the drawing and the printed neighbourhood."""

    op: str
    op_type: str
    hops: int  # distance from the origin: 0: the origin; -1: feeds it or ran before it; 1: is fed by it or ran after it
    result: Result
    # The largest error (calls.compute_error) of its outputs, or of all its tensors if it has none; None: not measured.
    error: float | None
    row_index: int | None  # of the worst row among these; None: the dump has none


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of the origin. `origin` None: nothing is bad, or the drift has no single origin."""

    headline: str  # one sentence: the answer
    origin: Origin | None
    further: tuple[Origin, ...] = ()  # other, independent origins
    causes: tuple[Cause, ...] = ()  # likeliest first
    neighbours: tuple[Neighbour, ...] = ()
    # (producer, consumer) among the neighbours; empty if the dump does not show what the origin reads from or feeds.
    # Then the neighbours are the operators that ran just before and after it.
    edges: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # what could not be examined

    @property
    def cause(self) -> str | None:
        return self.causes[0].name if self.causes else None


def count_results(rows: Sequence[Row]) -> dict[Result, int]:
    count = Counter(row.result for row in rows)
    return {result: count[result] for result in RESULTS}
