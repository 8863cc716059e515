"""First divergence of two loss curves: not at noise, not at a spike, and at the right step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from viaduct.comparison.curves import compare_curves, find_first_difference, read_curve
from viaduct.errors import BadData

STEPS = np.arange(1, 401)


def falling(seed: int, noise: float = 0.1) -> np.ndarray:
    return 2.3 * np.exp(-STEPS / 150) + noise * np.random.default_rng(seed).standard_normal(len(STEPS))


def write_run(path: Path, losses: np.ndarray, every: int = 50) -> Path:
    path.mkdir()
    lines = []
    for start in range(0, len(losses), every):
        part = [None if np.isnan(loss) else float(loss) for loss in losses[start : start + every]]
        lines.append({"kind": "log", "step": start + len(part), "loss": part[-1], "losses": part})
    lines.append({"kind": "evaluation", "step": len(losses), "loss": 1.0, "top1": 0.5})
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("seed", range(8))
def test_two_seeds_of_one_run_do_not_part(seed: int) -> None:
    assert find_first_difference(STEPS, falling(seed), falling(100 + seed)) is None


def test_equal_curves_do_not_part() -> None:
    assert find_first_difference(STEPS, falling(0), falling(0)) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_lasting_gap_is_found_near_its_step(seed: int) -> None:
    left = falling(seed) + np.where(STEPS >= 200, 0.5, 0.0)
    found = find_first_difference(STEPS, left, falling(50 + seed))
    assert found is not None
    assert abs(found.step - 200) <= 8


def test_a_spike_is_not_a_parting() -> None:
    left = falling(1)
    left[100:103] += 5
    assert find_first_difference(STEPS, left, falling(2)) is None


def test_a_slow_drift_is_found_once_it_leaves_the_noise() -> None:
    found = find_first_difference(STEPS, falling(1) + np.maximum(0, (STEPS - 150) * 0.004), falling(2))
    assert found is not None
    assert 180 < found.step < 300


def test_a_loss_that_becomes_nan_parts_there() -> None:
    left = falling(1)
    left[250:] = np.nan
    found = find_first_difference(STEPS, left, falling(2))
    assert found is not None
    assert found.step == 251


def test_few_points_are_compared_too() -> None:
    steps = np.arange(6) * 100
    right = np.array([2.3, 2.0, 1.8, 1.6, 1.5, 1.4])
    assert find_first_difference(steps, right.copy(), right) is None
    found = find_first_difference(steps, right + np.array([0, 1.0, 1.5, 2, 2.5, 3]), right)
    assert found is not None
    assert found.step == 100


def test_runs_are_read_step_by_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", falling(3))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "log", "step": 450, "lo')
    curve = read_curve(run)
    assert curve.steps.tolist() == STEPS.tolist()
    np.testing.assert_allclose(curve.loss, falling(3))
    assert curve.skipped_lines == 1
    assert curve.evaluations[0]["top1"] == 0.5


def test_two_runs_are_compared_on_their_common_steps(tmp_path: Path) -> None:
    left = write_run(tmp_path / "a", falling(1)[:300] + 1)
    curves = compare_curves(left, write_run(tmp_path / "b", falling(2)))
    assert len(curves.steps) == 300
    assert curves.exit_code == 1
    assert "part at step 1:" in curves.headline


@pytest.mark.parametrize(("gap_steps", "last"), [(12, 400), (7, 400), (400, 400)])
def test_the_headline_claims_a_gap_for_the_steps_that_were_checked(gap_steps: int, last: int, tmp_path: Path) -> None:
    right = falling(1, noise=0.01)
    left = right + np.where(last - gap_steps < STEPS, 1.0, 0.0)
    curves = compare_curves(write_run(tmp_path / "a", left), write_run(tmp_path / "b", right))
    assert curves.first_difference is not None
    checked = min(10, last - curves.first_difference.step + 1)
    assert f"stays beyond 2 times the noise of {curves.first_difference.noise:.2g} for {checked} steps or more." in (
        curves.headline
    )


def test_a_run_without_a_loss_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(BadData, match="holds no loss"):
        read_curve(tmp_path)


@pytest.mark.parametrize("start", [0, 250])
def test_a_loss_that_is_not_finite_on_either_side_does_not_pass(tmp_path: Path, start: int) -> None:
    left, right = falling(1), falling(2)
    left[start:] = right[start:] = np.nan
    curves = compare_curves(write_run(tmp_path / "a", left), write_run(tmp_path / "b", right))
    assert curves.first_difference is None
    assert curves.exit_code == 1
    assert f"NaN or infinite on both sides at {400 - start} of 400 common steps, first at step {start + 1}" in (
        curves.headline
    )


def test_an_infinite_loss_parts_without_a_warning(tmp_path: Path) -> None:
    left = falling(1)
    left[250:] = np.inf
    both = write_run(tmp_path / "a", left), write_run(tmp_path / "b", falling(2))
    curves = compare_curves(*both)
    assert curves.first_difference is not None
    assert curves.first_difference.step == 251
    assert "inf on the left" in curves.headline
    again = compare_curves(both[0], both[0])
    assert (again.exit_code, again.first_difference) == (1, None)
    assert np.isnan(again.difference[250:]).all()


@pytest.mark.parametrize("steps", [1, 4])
def test_too_few_common_steps_are_no_agreement(tmp_path: Path, steps: int) -> None:
    left = write_run(tmp_path / "a", falling(1)[:steps])
    with pytest.raises(BadData, match="too few"):
        compare_curves(left, write_run(tmp_path / "b", falling(1)))


def test_steps_of_one_run_only_are_counted(tmp_path: Path) -> None:
    left = write_run(tmp_path / "a", falling(1)[:300])
    curves = compare_curves(left, write_run(tmp_path / "b", falling(2)))
    assert curves.exit_code == 0
    assert curves.headline.endswith("Steps that only one run logged were not compared: 100 on the right.")


def test_a_half_written_last_line_is_reported(tmp_path: Path) -> None:
    left, right = write_run(tmp_path / "a", falling(1)), write_run(tmp_path / "b", falling(2))
    with (left / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "log", "step": 450, "lo')
    with (right / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "log", "step": Infinity, "loss": 1}\n{"kind": "evaluation", "step": 400, "loss": 1}\n')
    notes = compare_curves(left, right).notes
    assert notes[0].startswith("left: 1 line of metrics.jsonl could not be read; the last one may be incomplete")
    assert notes[1] == "right: 1 line of metrics.jsonl could not be read"
