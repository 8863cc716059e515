"""The arithmetic of where a classifier should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viaduct.cluster.layout import (
    MESSAGES_PER_PART,
    MIN_SPLIT_BYTES,
    NUMBERS_PER_IMAGE,
    Classifier,
    compare_layouts,
    format_bytes,
)
from viaduct.cluster.plan import INNER_LATENCY_S, Cluster, estimate_all_reduce_seconds

MANY = Classifier(classes=100_000, features=2048, global_batch=2048)


def test_figures_worked_out_by_hand() -> None:
    found = compare_layouts(MANY, Cluster(1, 8))
    assert found.data_bytes == 100_000 * 2049 * 12
    assert found.hybrid_bytes == 12_500 * 2049 * 12
    assert found.logits_bytes == 2048 * 12_500 * 4
    assert found.data_seconds == pytest.approx(2 * 7 / 8 * 100_000 * 2049 * 4 / 30e9 + 14 * INNER_LATENCY_S)
    sent = 2 * 7 / 8 * 2048 * (2048 + NUMBERS_PER_IMAGE) * 4 / 30e9
    assert found.hybrid_seconds == pytest.approx(sent + (MESSAGES_PER_PART + 1) * 14 * INNER_LATENCY_S)
    assert found.is_hybrid_better


@pytest.mark.parametrize(
    ("changes", "hybrid"),
    [
        ({"classes": 10}, False),
        ({"classes": 1001}, False),
        ({"classes": 3000, "global_batch": 8192}, False),  # large enough, but features are more than gradients
        ({"classes": 21_843}, True),
        ({"classes": 1_000_000, "features": 512}, True),
        ({"features": 32}, False),  # 38 MiB are not worth it
        ({"accumulate": 2048}, False),  # one exchange for each image
    ],
)
def test_few_classes_stay_whole_and_many_are_shared_out(changes: dict[str, int], hybrid: bool) -> None:
    assert compare_layouts(replace(MANY, **changes), Cluster(2, 8)).is_hybrid_better is hybrid


def test_more_servers_and_compression_count() -> None:
    first, second = compare_layouts(MANY, Cluster(1, 8)), compare_layouts(MANY, Cluster(2, 8))
    assert second.data_seconds > first.data_seconds
    assert second.hybrid_bytes == first.hybrid_bytes / 2
    half = compare_layouts(replace(MANY, gradient_bytes=2), Cluster(2, 8))
    assert half.data_seconds == estimate_all_reduce_seconds(MANY.weights * 2, Cluster(2, 8))
    assert half.hybrid_seconds == second.hybrid_seconds


def test_reasons_have_the_figures() -> None:
    few = compare_layouts(replace(MANY, classes=10), Cluster(1, 8)).list_reasons()
    assert few[0].startswith("the classifier takes 240.1 KiB of each rank with data, less than 64.0 MiB, ")
    many = compare_layouts(MANY, Cluster(1, 8)).list_reasons()
    assert many[0].startswith("the classifier takes 2.3 GiB of each rank with data, 293.1 MiB with hybrid")
    assert "47.95 ms with data (gradients), 1.96 ms with hybrid (features and sums)" in many[1]
    assert [format_bytes(100), format_bytes(2048), format_bytes(MIN_SPLIT_BYTES)] == [
        "100 bytes",
        "2.0 KiB",
        "64.0 MiB",
    ]
