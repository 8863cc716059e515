"""Where two loss curves part: not for noise, not for a moment, and at the right step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from viaduct.comparison.curves import compare_curves, parting, read_curve
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
    assert parting(STEPS, falling(seed), falling(100 + seed)) is None


def test_equal_curves_do_not_part() -> None:
    assert parting(STEPS, falling(0), falling(0)) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_lasting_gap_is_found_near_its_step(seed: int) -> None:
    left = falling(seed) + np.where(STEPS >= 200, 0.5, 0.0)
    found = parting(STEPS, left, falling(50 + seed))
    assert found is not None
    assert abs(found.step - 200) <= 8


def test_a_spike_is_not_a_parting() -> None:
    left = falling(1)
    left[100:103] += 5
    assert parting(STEPS, left, falling(2)) is None


def test_a_slow_drift_is_found_once_it_leaves_the_noise() -> None:
    found = parting(STEPS, falling(1) + np.maximum(0, (STEPS - 150) * 0.004), falling(2))
    assert found is not None
    assert 180 < found.step < 300


def test_a_loss_that_becomes_nan_parts_there() -> None:
    left = falling(1)
    left[250:] = np.nan
    found = parting(STEPS, left, falling(2))
    assert found is not None
    assert found.step == 251


def test_few_points_are_compared_too() -> None:
    steps = np.arange(6) * 100
    right = np.array([2.3, 2.0, 1.8, 1.6, 1.5, 1.4])
    assert parting(steps, right.copy(), right) is None
    found = parting(steps, right + np.array([0, 1.0, 1.5, 2, 2.5, 3]), right)
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


def test_a_run_without_a_loss_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(BadData, match="holds no loss"):
        read_curve(tmp_path)
