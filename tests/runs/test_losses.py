"""Loss curves of two runs: where they differ, and by more than noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from runs.sample_runs import make_run
from viaduct.runs.differences import RunDifference, diff_runs
from viaduct.runs.listing import open_run
from viaduct.runs.losses import LossDifference


def diff(first: Path, second: Path) -> RunDifference:
    return diff_runs(open_run(first), open_run(second))


def text(found: RunDifference) -> str:
    return "\n".join(found.render_lines())


def test_the_first_loss_that_differs_is_found_and_when_curves_stay_apart(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a")
    second = tmp_path / "b"
    shutil.copytree(first, second)
    lines = [json.loads(line) for line in (second / "metrics.jsonl").read_text().splitlines()]
    for record in lines:
        if record["kind"] == "log" and record["step"] > 300:
            record["losses"] = [loss + 1.0 for loss in record["losses"]]
    (second / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    losses = diff(first, second).losses
    assert isinstance(losses, LossDifference)
    assert losses.first == 301
    assert losses.beyond_noise is not None
    assert abs(losses.beyond_noise - 301) < 10
    assert losses.area is not None
    assert abs(losses.area - 299.5) < 0.1
    assert losses.last_gap is not None
    assert abs(losses.last_gap - 1.0) < 1e-9


def test_a_difference_within_noise_is_not_called_more(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", seed=1), make_run(tmp_path / "b", seed=2))
    assert isinstance(found.losses, LossDifference)
    assert (found.losses.first, found.losses.beyond_noise) == (1, None)
    assert "nowhere stay apart beyond their noise" in text(found)


def lose_losses(run: Path, after: int) -> Path:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in lines:
        if record["kind"] == "log" and record["step"] > after:
            record |= {"loss": None, "losses": [None] * len(record["losses"])}
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    return run


def test_no_distance_is_claimed_of_a_loss_that_is_nan(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a"), lose_losses(make_run(tmp_path / "b"), 500))
    assert isinstance(found.losses, LossDifference)
    assert (found.losses.area, found.losses.mean_gap, found.losses.last_gap) == (None, None, None)
    assert "The curves part at step 501: beyond their noise, or only one loss is finite." in text(found)
    assert "Area" not in text(found)
    assert "At the end" not in text(found)
    assert "Not comparable where the loss is NaN or infinite: 100 in B of 600 steps, first at step 501." in text(found)


def test_losses_that_are_nan_in_both_are_not_counted_as_equal(tmp_path: Path) -> None:
    found = diff(*(lose_losses(make_run(tmp_path / name), 500) for name in "ab"))
    assert "Losses: 500 exactly equal, as recorded." in text(found)
    assert "100 in A and 100 in B of 600 steps" in text(found)


def test_a_run_that_logged_nothing_is_reported_to_have_logged_no_loss(tmp_path: Path) -> None:
    (make_run(tmp_path / "b", done=0, finished=False) / "metrics.jsonl").unlink()
    found = diff(make_run(tmp_path / "a"), tmp_path / "b")
    assert "Losses: not compared: B logged no loss." in text(found)


def test_runs_without_a_common_step_are_not_compared(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", done=0, finished=False), make_run(tmp_path / "b"))
    assert isinstance(found.losses, str)
    assert "Losses: not compared" in text(found)
