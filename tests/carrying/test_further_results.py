"""Printed numbers are compared if each side repeats its own; numbers that only one side prints are reported."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from viaduct.carrying.further_results import (
    NUMBER,
    ComparedRuns,
    FurtherResults,
    compare_further_results,
    compare_inputs,
    find_times_and_speeds,
    is_alike,
)
from viaduct.carrying.observations import Observations, Rank
from viaduct.carrying.running import Run
from viaduct.rehearsal.observe import compute_fingerprint
from viaduct.rehearsal.plan import Plan


def record_output(folder: Path, name: str, text: str) -> Run:
    record = folder / name
    if text:
        (record / "printed").mkdir(parents=True)
        (record / "printed" / "1.jsonl").write_text(json.dumps([0, text]) + "\n")
    plan = Plan("original", "torch", "train.py", (), str(record), str(record / "work"), source_tree=str(folder))
    return Run("original", plan, None, Observations([]))  # type: ignore[arg-type]


def compare(folder: Path, original: str, migrated: str, again: str | None = None) -> FurtherResults:
    runs = [
        record_output(folder, "original", original),
        record_output(folder, "again", original if again is None else again),
    ]
    runs += [record_output(folder, "migrated", migrated), record_output(folder, "repeated", migrated)]
    return compare_further_results(ComparedRuns(runs[0], replace(runs[2], name="migrated"), runs[1], runs[3]))


def test_what_differs_in_times_and_devices_alone_is_the_same(tmp_path: Path) -> None:
    found = compare(tmp_path, "on cuda\nloss 0.5 in 1.25 s\n", "on npu\nloss 0.5 in 7.5 s\n", "loss 0.5 in 2.5 s\n")
    assert (found.differing, found.compared) == ([], 1)


def test_another_number_is_reported(tmp_path: Path) -> None:
    found = compare(tmp_path, "loss 0.5\n", "loss 0.6\n")
    assert found.differing == ["'loss 0.5' in the original, 'loss 0.6' after the migration"]


def test_a_result_that_one_side_alone_prints_is_reported(tmp_path: Path) -> None:
    found = compare(tmp_path, "loss 0.5\naccuracy 70\n", "loss 0.5\n")
    assert found.differing == ["'accuracy 70' is printed by the original only"]


def test_a_side_that_prints_nothing_is_reported(tmp_path: Path) -> None:
    assert compare(tmp_path / "a", "accuracy 70\n", "").differing == ["'accuracy 70' is printed by the original only"]
    found = compare(tmp_path / "b", "", "accuracy 70\n")
    assert found.differing == ["'accuracy 70' is printed by the migrated script only"]


def test_words_and_times_that_one_side_alone_prints_are_no_results(tmp_path: Path) -> None:
    found = compare(tmp_path, "ready\ntook 3 s\nloss 1\n", "loss 1\n", "ready\ntook 4 s\nloss 1\n")
    assert (found.differing, found.unpaired) == ([], 2)


def with_inputs(folder: Path, name: str, *inputs: list[float]) -> Run:
    return replace(record_output(folder, name, ""), observations=Observations([Rank(0, inputs=list(inputs))]))


def fingerprint_of(*rows: float) -> list[float]:
    return compute_fingerprint(torch.tensor(rows))


def test_a_batch_in_another_order_is_reported(tmp_path: Path) -> None:
    first, second = fingerprint_of(1.0, 2.0, 3.0), fingerprint_of(3.0, 2.0, 1.0)
    left = with_inputs(tmp_path, "original", first, first)
    assert compare_inputs(left, with_inputs(tmp_path, "same", first, first)) == []
    assert compare_inputs(left, with_inputs(tmp_path, "rounded", fingerprint_of(1.0, 2.0, 3.0000002), first)) == []
    (found,) = compare_inputs(left, with_inputs(tmp_path, "migrated", first, second))
    assert found == "the data of step 1 of rank 0, or their order"


def test_a_pass_that_returns_no_tensor_is_not_counted_as_compared(tmp_path: Path) -> None:
    runs = []
    for name in ("original", "migrated"):
        run = record_output(tmp_path, name, "")
        runs.append(replace(run, observations=Observations([Rank(0, [[1.0]], evaluations=[[], [2.0, 2.0]])])))
    assert compare_further_results(ComparedRuns(*runs)).evaluations == 1


def test_an_input_that_is_infinite_on_one_side_only_is_reported(tmp_path: Path) -> None:
    finite, infinite = fingerprint_of(1.0, 2.0), fingerprint_of(1.0, math.inf)
    for left, right in ((finite, infinite), (infinite, finite)):
        assert compare_inputs(with_inputs(tmp_path, "a", left), with_inputs(tmp_path, "b", right))
    assert not compare_inputs(with_inputs(tmp_path, "a", infinite), with_inputs(tmp_path, "b", infinite))


def test_a_part_of_a_hash_is_no_number() -> None:
    assert NUMBER.findall("commit 7e405988123456789012 at 1.5e-05") == ["1.5e-05"]


def test_a_fingerprint_takes_what_it_finds() -> None:
    assert compute_fingerprint(({"x": torch.tensor([2], dtype=torch.int64)}, "text", None)) == [2.0, 2.0]
    assert compute_fingerprint(torch.ones(3, dtype=torch.complex64)) == compute_fingerprint(torch.empty(0)) == []
    large = torch.arange(1 << 18, dtype=torch.float32)
    assert compute_fingerprint(large) != compute_fingerprint(large.flip(0))


@pytest.mark.parametrize(
    ("line", "durations"),
    [
        ("epoch time 0.3 memory 1106 KiB", {0}),
        ("5 of 2230 (epoch 0), train_loss = 4.175, time/batch = 0.012", {4}),
        ("step 3, loss = 2.31 (96.1 examples/sec; 0.083 sec/batch)", {2, 3}),
        ("time per step: 0.2, mean time per channel 0.3", {0}),
        ("step 3 loss 0.5 took: 2 s", {2}),
        ("120 images/s, lr 0.1", {0}),
        ("epoch 2: 35 it/s, 4.5 seconds, accuracy 0.25", {1, 2}),
        ("timesteps 8, times 3, seconds per step 4", set()),
        ("loss 0.5 in step 3", set()),
        ("max 0.5 min 0.1, eta 0.3", set()),  # a minimum and a rate are results
    ],
)
def test_times_and_speeds_are_no_results(line: str, durations: set[int]) -> None:
    assert find_times_and_speeds(line) == durations


def test_the_last_digit_of_a_number_with_an_exponent_counts_at_its_place() -> None:
    assert not is_alike("1.5e-05", "9.9e-02", 1e-6)
    assert is_alike("1.5e-05", "1.6e-05", 1e-6)
    assert is_alike("1e-05", "2e-05", 1e-6)
    assert is_alike("0.25", "0.26", 1e-6)
    assert not is_alike("7", "8", 1e-6)
    assert not is_alike("1.5e-05", "1.6e-05", 0.0)
    assert is_alike("1.50", "+1.5", 0.0)
    assert not is_alike("9007199254740993", "9007199254740992", 0.0)
