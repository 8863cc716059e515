"""The page of results: two runs side by side."""

from __future__ import annotations

from typing import Any

from viaduct.reporting.results import describe_time_to_accuracy, list_repeats, render_comparison


def run(name: str, accuracies: dict[int, float], minutes: float, steps_a_epoch: int = 10) -> dict[str, Any]:
    epochs = max(accuracies)
    rows = [{"epoch": e - 0.01, "step": e * steps_a_epoch, "top1": top1} for e, top1 in accuracies.items()]
    return {
        "recipe": name,
        "date": "2026-01-02",
        "epochs": epochs,
        "steps": epochs * steps_a_epoch,
        "minutes": {"training": minutes, "evaluation": 1.0},
        "final": {"top1": rows[-1]["top1"]},
        "best": {"top1": max(row["top1"] for row in rows)},
        "machine": {"description": "a card"},
        "samples": {"evaluations": rows},
    }


SLOW = run("slow", {10: 0.5, 20: 0.7, 40: 0.9}, minutes=8.0)


def test_the_first_evaluation_within_two_tenths_of_a_point_counts() -> None:
    quick = run("quick", {10: 0.8, 20: 0.8985}, minutes=6.0)
    assert (
        "by epoch 20: in 0.50 of the first's epochs and 0.75 of the first's training time"
        in describe_time_to_accuracy(SLOW, quick)
    )


def test_a_run_that_never_arrives_is_reported_to_fall_short() -> None:
    assert "does not reach" in describe_time_to_accuracy(SLOW, run("quick", {10: 0.8, 20: 0.8975}, minutes=6.0))


def test_a_run_without_a_recorded_best_is_compared_by_its_last_accuracy() -> None:
    quick = {**run("quick", {10: 0.8, 20: 0.7}, minutes=6.0), "best": None}
    assert "its best is 70.00 %" in describe_time_to_accuracy(SLOW, quick)


def test_epochs_that_only_one_run_has_keep_the_other_cells_empty() -> None:
    lines = render_comparison(SLOW, run("quick", {5: 0.6, 10: 0.8}, minutes=6.0)).splitlines()
    assert "| 5 |  |  | 60.00 | 3.0 |" in lines
    assert "| 10 | 50.00 | 2.0 | 80.00 | 6.0 |" in lines
    assert "| 40 | 90.00 | 8.0 |  |  |" in lines


def test_a_repeated_bench_shows_each_of_its_measurements() -> None:
    runs = [{"ms_per_step": 29.266, "ours_is": 1.0}, {"ms_per_step": 29.368, "ours_is": 1.0}]
    peer = {"variant": "torchvision resnet50, compiled", "runs": [{"ours_is": 1.2911}, {"ours_is": 1.2872}]}
    repeats = list_repeats({"verb": "bench", "runs": runs, "peers": [peer]})
    assert "29.27, 29.37 ms a step" in repeats
    assert "1.291x, 1.287x torchvision resnet50, compiled" in repeats
    assert list_repeats({"verb": "bench", "runs": runs[:1], "peers": [peer]}) == ""  # nothing was repeated
