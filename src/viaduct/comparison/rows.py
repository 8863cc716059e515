"""Results of a comparison: a row per pair of tensors, the origin, and its explanation.

The table, the page, the summary and the printed answer are made from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from viaduct.comparison.tensors import Pair, Result, StoredTensor

if TYPE_CHECKING:
    from viaduct.comparison.measures import Measures

RESULT_MEANINGS: dict[Result, str] = {
    "good": "within the thresholds",
    "bad": "beyond a threshold, or NaN, Inf or zeros on one side",
    "flag": "not bad, but worth a look: the reason says why",
    "refused": "not compared: missing, damaged, empty or of another shape; never counts as good",
    "new": "has nothing to be compared with, by the graph or the rules file",
}
RESULTS: tuple[Result, ...] = tuple(RESULT_MEANINGS)
SEVERITY: tuple[Result, ...] = ("bad", "refused", "flag", "new", "good")  # the worst first
OriginKind = Literal["operator", "parameter", "input"]


@dataclass(frozen=True, slots=True)
class Row:
    """One pair of tensors, measured and judged. Without measures it is refused or new."""

    pair: Pair
    measures: Measures | None
    result: Result
    reason: str = ""  # the CompareFailReason column: why it is not good
    follows_from: str = ""  # the operator that differed before and explains this row

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
    """First divergence: an operator, parameter or network input that is bad although its inputs are good.

    If the dump does not show one, it is the first bad tensor in execution order, and `why` says so.
    """

    op: str
    kind: OriginKind
    step: int
    rank: int
    row_index: int  # of the operator's first bad row in the comparison's rows
    why: str  # one sentence: what differs, and what is known about its inputs
    are_inputs_known: bool = True  # False: the inputs were not compared, so the sides may part before this operator


@dataclass(frozen=True, slots=True)
class Cause:
    """One possible cause of the origin, with its evidence."""

    name: str  # overflow, reduced precision, wrong layout …: the word in summary.json
    confidence: float = field(kw_only=True)  # 0 … 1; the causes of an origin are sorted by it
    evidence: str  # observations in the tensors, with numbers
    advice: str  # what to try


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An operator near the origin, for the drawing and the printed neighbourhood."""

    op: str
    op_type: str
    hops: int  # distance from the origin: 0: the origin; -1: feeds it or ran before it; 1: is fed by it or ran after it
    result: Result
    error: float | None  # the largest error of its outputs (calls.compute_error); None if nothing was measured
    row_index: int | None  # of its worst row


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
