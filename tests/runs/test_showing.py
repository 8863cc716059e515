"""One run in words."""

from __future__ import annotations

from pathlib import Path

from runs.sample_runs import make_run
from viaduct.runs.listing import open_run
from viaduct.runs.showing import draw_sparkline, render_run


def test_control_characters_of_a_run_do_not_reach_the_terminal(tmp_path: Path) -> None:
    text = render_run(open_run(make_run(tmp_path / "a", name="x\x1b[31m", command="rm\r")))
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_run_is_shown_with_facts_curves_evaluations_and_diagnosis(tmp_path: Path) -> None:
    text = render_run(open_run(make_run(tmp_path / "a")))
    for part in (
        "state          finished",
        "data           Shapes (fingerprint da7a of every pixel; all labels)",
        "best top-1     89.78 % after step 600",
        "Evaluations (the last 5 of 6):",
        "Learning rate: ",
        "optimizer.lr=0.1",
    ):
        assert part in text
    assert text.count("█") >= 2


def test_a_run_without_a_step_is_shown_too(tmp_path: Path) -> None:
    text = render_run(open_run(make_run(tmp_path / "a", done=0, finished=False, provenance=None)))
    assert "never begun" in text
    assert "fingerprint not recorded" in text
    assert "Not evaluated yet." in text


def test_noise_is_not_diagnosed(tmp_path: Path) -> None:
    text = render_run(open_run(make_run(tmp_path / "a", data="synthetic")))
    assert "losses and accuracies say nothing" in text
    assert "Learning rate: " not in text


def test_a_sparkline_falls_with_its_values_and_marks_what_is_lost() -> None:
    assert draw_sparkline([8.0, 6.0, 4.0, 2.0, None]) == "█▆▃▁×"
    assert draw_sparkline([1.0, 1.0]) == "▅▅"
    assert len(draw_sparkline([float(value) for value in range(1000)])) == 60
