"""Latency: percentiles of the calls that were made, warm-up left out, and nothing said that too few calls show."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import BadValue
from viaduct.handover.classifier import open_run
from viaduct.handover.engine import build_engine
from viaduct.handover.latency import measure_latency, read_batches, summarise_calls


def test_percentiles_and_throughput_are_those_of_the_calls() -> None:
    found = summarise_calls(4, [0.010] * 90 + [0.020] * 9 + [0.100])
    assert found["p50_ms"] == pytest.approx(10)
    assert found["p95_ms"] == pytest.approx(20)
    assert found["slowest_ms"] == pytest.approx(100)
    assert found["images_per_s"] == pytest.approx(400 / (0.9 + 0.18 + 0.1))


def test_a_percentile_of_too_few_calls_is_none() -> None:
    found = summarise_calls(1, [0.01] * 20)
    assert found["p95_ms"] is not None
    assert found["p99_ms"] is None


def test_warm_up_calls_are_counted_and_left_out(shapes_run: Path) -> None:
    engine = build_engine(open_run(shapes_run), device="cpu", precision="fp32")
    found = measure_latency(engine, 2, warm_up=3, repeats=5)
    assert (found["warm_up_calls"], found["calls"], found["batch"]) == (3, 5, 2)
    assert found["fastest_ms"] <= found["mean_ms"] <= found["slowest_ms"]


def test_the_time_limit_ends_both_parts(shapes_run: Path) -> None:
    engine = build_engine(open_run(shapes_run), device="cpu", precision="fp32")
    found = measure_latency(engine, 1, warm_up=1000, repeats=1000, seconds=0.0)
    assert (found["warm_up_calls"], found["calls"]) == (1, 1)


@pytest.mark.parametrize("text", ["", "0", "1,,8", "a", "1,-2", "999999", "1.5"])
def test_a_bad_list_of_batch_sizes_is_named(text: str) -> None:
    with pytest.raises(BadValue, match="--batch"):
        read_batches(text)
    assert read_batches("1, 8,64") == [1, 8, 64]
