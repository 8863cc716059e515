"""Labels that are off by one, or different."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import Array, ComparisonBuilder


def test_labels_off_by_one_are_reported_with_the_offset() -> None:
    builder = ComparisonBuilder()
    labels = builder.draw.integers(0, 10, 16)
    builder.add("labels", labels + 1, labels)
    assert builder.cause(kind="input") == "label offset"
    assert "+1" in builder.causes()[0].evidence


def gradient_of(labels: Array, logits: Array) -> Array:
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    share[np.arange(len(labels)), labels] -= 1
    return (share / len(labels)).astype(np.float32)


def test_labels_off_by_one_are_read_from_the_gradient_of_the_logits() -> None:
    builder = ComparisonBuilder()
    logits, labels = builder.normal(6, 10), builder.draw.integers(0, 10, 6)
    builder.add("head", gradient_of((labels - 1) % 10, logits), gradient_of(labels, logits), "grad_output")
    cause = builder.causes(kind="input")[0]
    assert cause.name == "label offset"
    assert "-1" in cause.evidence


def test_other_labels_altogether_are_no_offset() -> None:
    builder = ComparisonBuilder()
    logits = builder.normal(6, 10)
    sides = [gradient_of(np.array(labels), logits) for labels in ([1, 2, 3, 4, 5, 6], [3, 9, 1, 1, 7, 0])]
    builder.add("head", *sides, "grad_output")
    assert builder.cause(kind="input") == "different labels"


def test_a_counter_is_no_label() -> None:
    builder = ComparisonBuilder()
    builder.add("bn", np.array(7), np.array(0), "parameter", parameter="num_batches_tracked", op_type="BatchNorm2d")
    assert builder.cause(kind="parameter") is None
