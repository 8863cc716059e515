"""Latency: percentiles of the calls that were made, warm-up left out, and nothing said that too few calls show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import viaduct
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


def test_a_percentile_that_too_few_calls_show_is_left_open() -> None:
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


def test_evaluate_prints_a_row_for_each_batch_size(shapes_run: Path) -> None:
    flags = ["--latency", "--batch", "1,3", "--warm-up", "2", "--repeats", "4", "--device", "cpu", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "viaduct", "evaluate", str(shapes_run), *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["batch"] for row in found["rows"]] == [1, 3]
    assert found["folding"]["origin"] == "16 of the run's validation images"
    assert found["folding"]["largest_difference_of_a_probability"] < 1e-4  # in fp32


@pytest.mark.parametrize(("flag", "value"), [("--batch", "4"), ("--warm-up", "0"), ("--repeats", "9")])
def test_flags_of_latency_are_refused_without_it(flag: str, value: str, shapes_run: Path) -> None:
    done = viaduct("evaluate", shapes_run, flag, value, "--device", "cpu")
    assert done.returncode == 2
    assert f"{flag} is for --latency, which is not given." in done.stderr
    assert done.stdout == ""
