"""Where the classifier of many classes should be: whole on every rank, or shared out over them.

Like `plan`, this is arithmetic: nothing is run and torch is not imported. With C classes, F features, B pictures in a
global batch worked through in k parts, R ranks, and s numbers that the optimizer keeps for each weight:

    memory      of the classifier: C (F+1) x 4 x (2 + s) bytes with data, a rank's rows of it with hybrid
    logits      of a part: B/(kR) x C x 4 bytes with data, B/k x C/R x 4 with hybrid: the same
    data sends  an all-reduce of C (F+1) gradients in every step
    hybrid      in each part an all-gather of the features and a reduce-scatter of their gradients (together the volume
                of an all-reduce of B/k x F numbers) and, for each picture, six numbers in five small messages

Hybrid is chosen where it sends for less time and the classifier is large enough to be worth it.
"""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.cluster.plan import INNER_LATENCY_S, LATENCY_S, MASTER_BYTES, Cluster, all_reduce_seconds

WORTH_BYTES = 64 << 20
"""Below this, the memory of a classifier is no reason to share it out."""
MESSAGES = 5
"""Of each part, beside the features: labels and their shares, the largest logit, the sums, the best class."""
NUMBERS = 6
"""For each picture in these messages."""


@dataclass(frozen=True)
class Classifier:
    """What decides: the sizes of a classifier and of what it is trained with."""

    classes: int
    features: int
    global_batch: int
    accumulate: int = 1
    gradient_bytes: int = 4
    """Of one number of a gradient on its way: 2 with compression."""
    kept: int = 3
    """fp32 numbers for each weight: itself, its gradient, the optimizer's, averages."""

    @property
    def weights(self) -> int:
        return self.classes * (self.features + 1)


@dataclass(frozen=True)
class Comparison:
    """Of one rank, in bytes and in seconds of a step."""

    data_bytes: int
    hybrid_bytes: int
    logits_bytes: int
    data_seconds: float
    hybrid_seconds: float

    @property
    def hybrid(self) -> bool:
        return self.data_bytes >= WORTH_BYTES and self.hybrid_seconds < self.data_seconds

    def reasons(self) -> list[str]:
        """The figures, for a person."""
        enough = "" if self.data_bytes >= WORTH_BYTES else f", less than {size(WORTH_BYTES)}"
        return [
            f"the classifier takes {size(self.data_bytes)} of each rank with data{enough}, "
            f"{size(self.hybrid_bytes)} with hybrid; its logits {size(self.logits_bytes)} with either",
            f"sent for it in a step: about {1000 * self.data_seconds:.2f} ms with data (gradients), "
            f"{1000 * self.hybrid_seconds:.2f} ms with hybrid (features and sums)",
        ]


def compare(work: Classifier, cluster: Cluster) -> Comparison:
    rows = -(-work.classes // cluster.ranks)
    pictures = -(-work.global_batch // work.accumulate)
    held = MASTER_BYTES * work.kept
    return Comparison(
        data_bytes=work.weights * held,
        hybrid_bytes=rows * (work.features + 1) * held,
        logits_bytes=pictures * rows * MASTER_BYTES,
        data_seconds=all_reduce_seconds(work.weights * work.gradient_bytes, cluster),
        hybrid_seconds=work.accumulate * part_seconds(work, pictures, cluster),
    )


def part_seconds(work: Classifier, pictures: int, cluster: Cluster) -> float:
    features = all_reduce_seconds(pictures * work.features * MASTER_BYTES, cluster)
    sums = all_reduce_seconds(pictures * NUMBERS * MASTER_BYTES, cluster)
    latency = 2 * (cluster.devices - 1) * INNER_LATENCY_S + 2 * (cluster.servers - 1) * LATENCY_S
    return features + sums + (MESSAGES - 1) * latency


def size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
