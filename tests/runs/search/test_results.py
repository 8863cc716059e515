"""Statements about the best trial: none that noise could explain."""

from __future__ import annotations

import pytest

from viaduct.runs.search.results import (
    TrialResult,
    describe_verdict,
    estimate_difference_noise,
    judge_results,
    measure_seed_deviation,
)


def result(
    number: int, value: float | None, images: int | None = 1000, lr: float = 0.0, seed: int = 1, **more: object
) -> TrialResult:
    values = {"optimizer.lr": lr or 0.1 * (number + 1)}
    state = more.pop("state", "finished")
    return TrialResult(f"trial-{number:03d}", number, values, state, value, images, seed)  # type: ignore[arg-type]


def test_a_difference_within_the_noise_of_the_images_is_not_called_better() -> None:
    verdict = judge_results([result(0, 0.90), result(1, 0.91), result(2, 0.50)], "top1", "maximize")
    assert verdict is not None
    assert verdict.best.name == "trial-001"
    assert [other.name for other in verdict.ties] == ["trial-000"]
    text = " ".join(describe_verdict(verdict, "top1"))
    assert "not shown to be better than 1 other (trial-000)" in text
    assert "1,000 validation images" in text
    assert "better" not in text.replace("not shown to be better", "")


def test_a_large_difference_is_no_tie_and_seed_noise_is_reported_as_not_measured() -> None:
    verdict = judge_results([result(0, 0.90), result(1, 0.50)], "top1", "maximize")
    assert verdict is not None
    assert verdict.ties == []
    text = " ".join(describe_verdict(verdict, "top1"))
    assert "All others trained to their end differ by more" in text
    assert "Noise between seeds was not measured" in text


def test_trials_of_equal_values_and_one_seed_do_not_measure_the_noise_between_seeds() -> None:
    results = [result(0, 0.5, lr=0.1), result(1, 0.5, lr=0.1), result(2, 0.49, lr=0.2)]
    assert measure_seed_deviation(results) is None
    verdict = judge_results(results, "loss", "minimize")
    assert verdict is not None
    assert verdict.noise is None
    assert "was not measured" in describe_verdict(verdict, "loss")[1]


def test_runs_of_equal_values_measure_the_noise_between_seeds() -> None:
    results = [result(0, 0.90, lr=0.1), result(1, 0.80, lr=0.1, seed=2), result(2, 0.95, lr=0.2)]
    assert measure_seed_deviation(results) == pytest.approx(0.0707, abs=1e-3)
    verdict = judge_results(results, "top1", "maximize")
    assert verdict is not None
    assert len(verdict.ties) == 2
    assert "other seeds" in verdict.source
    assert not any("was not measured" in line for line in describe_verdict(verdict, "top1"))


def test_noise_is_in_points_for_every_metric_in_percent() -> None:
    results = [result(0, 0.90, lr=0.1), result(1, 0.80, lr=0.1, seed=2), result(2, 0.95, lr=0.2)]
    verdict = judge_results(results, "precision", "maximize")
    assert verdict is not None
    text = " ".join(describe_verdict(verdict, "precision"))
    assert "95.00 %" in text
    assert "(about 19.60 points)" in text


def test_the_noise_of_other_metrics_is_not_known_without_repeats() -> None:
    verdict = judge_results([result(0, 0.2), result(1, 0.3)], "loss", "minimize")
    assert verdict is not None
    assert verdict.best.name == "trial-000"
    assert verdict.noise is None
    assert "was not measured" in describe_verdict(verdict, "loss")[1]


def test_pruned_failed_and_unfinished_trials_are_never_the_best() -> None:
    results = [result(0, 0.99, state="pruned"), result(1, None, state="failed"), result(2, 0.6)]
    verdict = judge_results(results, "top1", "maximize")
    assert verdict is not None
    assert verdict.best.name == "trial-002"
    assert judge_results(results[:2], "top1", "maximize") is None


def test_the_best_is_called_so_only_of_the_trials_trained_to_their_end() -> None:
    verdict = judge_results([result(0, 0.16, state="pruned"), result(1, 0.10)], "top1", "maximize")
    assert verdict is not None
    assert describe_verdict(verdict, "top1")[0].startswith(
        "Highest top1 of those trained to their end: 10.00 %, trial-001"
    )


def test_an_accuracy_of_every_image_has_noise_too() -> None:
    noise = estimate_difference_noise(result(0, 1.0, 100), result(1, 1.0, 100), "top1", None)
    assert noise is not None
    assert noise > 0.01
