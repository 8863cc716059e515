"""Tensors of two runs are compared by `viaduct compare`, with the tolerance that carry has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from forked_viaduct import viaduct
from viaduct.carrying.agreement import Agreement, judge, pair_observations
from viaduct.carrying.drift import compare_tensors, find_first_differing_call, find_first_differing_module
from viaduct.carrying.observations import Observations, read_rank
from viaduct.comparison.drift import Drift
from viaduct.comparison.output import write_drift
from viaduct.comparison.summary import make_summary
from viaduct.rehearsal.observe import find_rank_folder, save_arrays, write_steps

ONES = np.ones(4, np.float32)


def write_record(path: Path, shift: float = 0.0, rank: int = 0, **given: Any) -> Path:
    """Write a rehearsal's record: two steps of two layers, everything but the batch scaled by 1 + `shift`."""
    moved = ONES * np.float32(1 + shift)
    forward = {"00000 input 0": ONES, "00001 first": moved, "00002 last": 2 * moved}
    folder = find_rank_folder(path, rank)
    folder.mkdir(parents=True)
    losses = given.get("losses", [2.0 * (1 + shift), 1.0 * (1 + shift)])
    write_steps(folder, [{"step": step, "losses": [loss], "lr": []} for step, loss in enumerate(losses)])
    save_arrays(folder / "forward.npz", given.get("forward", forward))
    save_arrays(folder / "gradients.npz", given.get("gradients", {"first.weight": moved}))
    save_arrays(folder / "weights.npz", given.get("weights", {"first.weight": moved, "count": np.array(2)}))
    return path


def observe(path: Path) -> Observations:
    return Observations([read_rank(find_rank_folder(path, 0), 0)])


def compare(migrated: Path, original: Path, shaken: Path | None = None) -> tuple[Agreement, Drift]:
    perturbed_pairs = pair_observations(observe(original), observe(shaken)) if shaken is not None else None
    agreement = judge(pair_observations(observe(original), observe(migrated)), perturbed_pairs)
    return agreement, compare_tensors(migrated, original, shaken, agreement)


def results(drift: Drift) -> dict[str, str]:
    return {f"{row.tensor.step} {row.tensor_index}": row.result for row in drift.rows}


def test_thresholds_are_called_measured_only_with_a_run_that_measured_them(tmp_path: Path) -> None:
    original, migrated, perturbed = (write_record(tmp_path / name) for name in ("cuda", "npu", "shaken"))
    assert compare(migrated, original)[1].options.threshold_source.startswith("not measured")
    assert compare(migrated, original, perturbed)[1].options.threshold_source.startswith("measured: 16 times")


def test_an_unsure_agreement_has_the_tolerances_without_a_perturbed_run(tmp_path: Path) -> None:
    original, migrated = write_record(tmp_path / "cuda"), write_record(tmp_path / "npu", 3e-7)
    agreement, drift = compare(migrated, original, write_record(tmp_path / "shaken", 0.1))
    assert agreement.verdict == "unsure"
    assert drift.options.threshold_source.startswith("not measured")
    assert set(results(drift).values()) == {"good"}  # less than four units in the last place


def test_equal_runs_have_good_rows_only(tmp_path: Path) -> None:
    agreement, drift = compare(write_record(tmp_path / "npu"), write_record(tmp_path / "cuda"))
    assert agreement.verdict == "same"
    assert drift.exit_code == 0
    assert results(drift) == dict.fromkeys(
        [
            *("0 network:input:0", "0 first:output:0", "0 last:output:0", "0 loss:output:0"),
            *("0 first.weight:gradient:0", "1 loss:output:0", "2 first.weight:parameter:0", "2 count:parameter:0"),
        ],
        "good",
    )


def test_the_measured_tolerance_is_the_threshold_of_each_tensor(tmp_path: Path) -> None:
    original, shaken = write_record(tmp_path / "cuda"), write_record(tmp_path / "shaken", 1e-6)
    within, rows = compare(write_record(tmp_path / "near", 3e-6), original, shaken)
    assert (within.verdict, rows.exit_code) == ("rounding", 0)
    beyond, rows = compare(write_record(tmp_path / "far", 1e-4), original, shaken)
    assert (beyond.verdict, rows.exit_code) == ("differ", 1)
    assert rows.explanation.origin is not None
    assert rows.explanation.origin.op == "first"
    assert results(rows)["2 count:parameter:0"] == results(rows)["0 network:input:0"] == "good"


def test_what_the_agreement_calls_different_is_bad_in_every_row(tmp_path: Path) -> None:
    many = np.zeros(10_000, np.int64)
    flipped = many.copy()
    flipped[7] = 1
    original = write_record(tmp_path / "cuda", weights={"table": many, "gone": ONES})
    agreement, drift = compare(write_record(tmp_path / "npu", weights={"table": flipped}), original)
    assert {pair.name for pair in agreement.bad} == {"table", "gone"}
    assert {row.op for row in drift.rows if row.result == "bad"} == {"table", "gone"}
    assert next(row.reason for row in drift.rows if row.op == "gone") == "only the original has it"


def test_a_value_that_the_script_magnifies_is_refused_not_good(tmp_path: Path) -> None:
    original, shaken = write_record(tmp_path / "cuda"), write_record(tmp_path / "shaken", losses=[2.0, 1.2])
    agreement, drift = compare(write_record(tmp_path / "npu", losses=[2.0, 1.1]), original, shaken)
    assert not agreement.bad
    row = next(row for row in drift.rows if row.tensor.step == 1)
    assert row.result == "refused"
    assert "amplifies" in row.reason


def test_the_first_module_that_differs_is_named_in_the_order_of_the_calls(tmp_path: Path) -> None:
    original = write_record(tmp_path / "cuda")
    other = {"00000 input 0": ONES, "00001 first": ONES, "00002 last": 3 * ONES}
    _, drift = compare(write_record(tmp_path / "npu", forward=other, losses=[3.0, 1.0]), original)
    row = find_first_differing_call(drift)
    assert row is not None
    assert row.op == "last"
    batch = {"00000 input 0": 2 * ONES, "00001 first": ONES}
    assert find_first_differing_module(write_record(tmp_path / "again", forward=batch), original) == "network input 0"
    assert find_first_differing_module(original, original) is None


def test_nan_in_the_same_places_is_no_divergence(tmp_path: Path) -> None:
    same = {"00000 input 0": ONES, "00001 first": np.array([np.nan, 1.0], np.float32)}
    original = write_record(tmp_path / "cuda", forward=same)
    assert find_first_differing_module(write_record(tmp_path / "again", forward=same), original) is None


def test_the_page_says_that_the_thresholds_were_measured(tmp_path: Path) -> None:
    original = write_record(tmp_path / "cuda")
    _, drift = compare(write_record(tmp_path / "npu", 1e-2), original, write_record(tmp_path / "shaken", 1e-6))
    write_drift(drift, make_summary(drift), tmp_path / "out")
    assert "16 times the drift" in (tmp_path / "out" / "report.html").read_text()
    assert "first:output:0" in (tmp_path / "out" / "drift.csv").read_text()


def test_compare_reads_the_record_of_a_run(tmp_path: Path) -> None:
    sides = str(write_record(tmp_path / "npu", 1e-2)), str(write_record(tmp_path / "cuda"))
    found = viaduct("compare", *sides)
    assert found.returncode == 1
    assert "The sides part at or before first (step 0)" in found.stdout
    assert viaduct("compare", sides[1], sides[1]).returncode == 0


def test_a_damaged_record_is_refused_by_name(tmp_path: Path) -> None:
    original, broken = write_record(tmp_path / "cuda"), write_record(tmp_path / "npu")
    (find_rank_folder(broken, 0) / "weights.npz").write_bytes(b"PK")
    drift = compare_tensors(broken, original, None, judge(pair_observations(observe(original), observe(original))))
    assert any(row.result == "refused" and "weights.npz" in row.reason for row in drift.rows)


def test_a_side_that_recorded_nothing_lacks_the_tensors_of_the_other(tmp_path: Path) -> None:
    original = write_record(tmp_path / "cuda")
    (tmp_path / "npu").mkdir()
    agreement = judge(pair_observations(observe(original), Observations([])))
    drift = compare_tensors(tmp_path / "npu", original, None, agreement)
    assert agreement.verdict == "differ"
    assert {row.reason for row in drift.rows} == {"only the original has it"}
    assert {row.result for row in drift.rows} <= {"bad", "refused"}
