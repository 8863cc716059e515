"""Compare two layouts of a classifier with many classes: `data`, complete on every rank; `hybrid`, classes split.

The comparison is calculated; nothing is run and torch is not imported. With C classes, F features, B images in a global
batch that is accumulated in k parts, R ranks, and an optimizer that keeps s fp32 numbers for each weight:

    memory of the classifier     data: C (F+1) x 4 x (2 + s) bytes (weights, gradients, optimizer)
                                 hybrid: the same for C/R classes
    memory of a part's logits    data: B/(kR) x C x 4 bytes; hybrid: B/k x C/R x 4, which is the same
    sent with data               an all-reduce of C (F+1) gradients in every step
    sent with hybrid             in each part an all-gather of the features and a reduce-scatter of their gradients
                                 (together the volume of an all-reduce of B/k x F numbers), and for each image eight
                                 numbers in six small messages

Hybrid is chosen if it takes less time to send and the classifier takes at least `MIN_SPLIT_BYTES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from viaduct.cluster.plan import FP32_BYTES, INNER_LATENCY_S, LATENCY_S, Cluster, estimate_all_reduce_seconds

MIN_SPLIT_BYTES = 64 << 20  # a classifier that takes less memory is never split
# Small messages of each part of the batch: labels, their weights, the largest logit, three sums, and for the number of
# correct images the largest logit again and its class. The second label and weight of mixed labels are not counted.
MESSAGES_PER_PART = 6
NUMBERS_PER_IMAGE = 8  # in these messages together


@dataclass(frozen=True)
class Classifier:
    """Sizes of a classifier and of its training."""

    classes: int
    features: int
    global_batch: int
    accumulate: int = 1
    gradient_bytes: int = 4  # bytes of one number of a gradient when it is sent: 2 with compression
    numbers_per_weight: int = 3  # fp32 numbers in memory: the weight, its gradient, the optimizer's, an average

    @property
    def weights(self) -> int:
        """Number of weights and biases."""
        return self.classes * (self.features + 1)


@dataclass(frozen=True)
class Comparison:
    """Memory of the classifier on one rank, and time to send for it in a step, in both layouts."""

    data_bytes: int  # weights, gradients and optimizer
    hybrid_bytes: int
    logits_bytes: int  # the same in both layouts
    data_seconds: float
    hybrid_seconds: float

    @property
    def is_hybrid_better(self) -> bool:
        """True if the classifier takes `MIN_SPLIT_BYTES` or more on each rank, and hybrid takes less time to send."""
        return self.data_bytes >= MIN_SPLIT_BYTES and self.hybrid_seconds < self.data_seconds

    def list_reasons(self) -> list[str]:
        """Return the figures as sentences."""
        too_small = "" if self.data_bytes >= MIN_SPLIT_BYTES else f", less than {format_bytes(MIN_SPLIT_BYTES)}"
        return [
            f"the classifier takes {format_bytes(self.data_bytes)} of each rank with data{too_small}, "
            f"{format_bytes(self.hybrid_bytes)} with hybrid; its logits {format_bytes(self.logits_bytes)} with either",
            f"sent for it in a step: about {1000 * self.data_seconds:.2f} ms with data (gradients), "
            f"{1000 * self.hybrid_seconds:.2f} ms with hybrid (features and sums)",
        ]


def compare_layouts(classifier: Classifier, cluster: Cluster) -> Comparison:
    """Compare the data-parallel and the hybrid layout."""
    classes_per_rank = math.ceil(classifier.classes / cluster.ranks)
    images_per_part = math.ceil(classifier.global_batch / classifier.accumulate)
    weight_bytes = FP32_BYTES * classifier.numbers_per_weight
    return Comparison(
        data_bytes=classifier.weights * weight_bytes,
        hybrid_bytes=classes_per_rank * (classifier.features + 1) * weight_bytes,
        logits_bytes=images_per_part * classes_per_rank * FP32_BYTES,
        data_seconds=estimate_all_reduce_seconds(classifier.weights * classifier.gradient_bytes, cluster),
        hybrid_seconds=classifier.accumulate * estimate_part_seconds(classifier.features, images_per_part, cluster),
    )


def estimate_part_seconds(features: int, images: int, cluster: Cluster) -> float:
    """Return the communication time of one part of the batch in the hybrid layout."""
    features_seconds = estimate_all_reduce_seconds(images * features * FP32_BYTES, cluster)
    small_bytes = images * NUMBERS_PER_IMAGE * FP32_BYTES
    small_seconds = estimate_all_reduce_seconds(small_bytes, cluster)  # with the latency of one message
    latency = 2 * (cluster.devices - 1) * INNER_LATENCY_S + 2 * (cluster.servers - 1) * LATENCY_S
    return features_seconds + small_seconds + (MESSAGES_PER_PART - 1) * latency


def format_bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
