"""Progress of a run without a network: rates, seeds, evaluations, seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training.tiny_runs import RECIPE
from viaduct.errors import BadValue
from viaduct.recipes import Recipe
from viaduct.training.progress import Progress, Stopwatch
from viaduct.training.schedule import RunLength

PACE = RunLength(images=40, global_batch=8, steps=10)


def progress_at(step: int, recipe: Recipe = RECIPE) -> Progress:
    progress = Progress(recipe, PACE, [0.1, 0.2])
    progress.step = step
    return progress


def test_a_changed_rate_changes_all_groups_and_all_later_steps() -> None:
    progress = progress_at(3)
    progress.change_learning_rate(0.05)
    assert progress.rates_at(3) == progress.rates_at(9) == [pytest.approx(0.05), pytest.approx(0.1)]


def test_a_rate_below_zero_is_refused() -> None:
    with pytest.raises(BadValue, match="rate is -1"):
        progress_at(0).change_learning_rate(-1)


@pytest.mark.parametrize(("step", "first_epoch"), [(0, 0), (3, 1), (5, 1), (6, 2)])
def test_a_seed_holds_for_epochs_that_have_not_begun(step: int, first_epoch: int) -> None:
    progress = progress_at(step)
    progress.change_order_seed(7)
    seeds = [progress.order_seed_of(epoch) for epoch in range(3)]
    assert seeds == [RECIPE.seed] * first_epoch + [7] * (3 - first_epoch)


def test_an_evaluation_is_due_at_its_interval_and_at_the_end_but_not_twice() -> None:
    due = [step for step in range(11) if progress_at(step).is_evaluation_due()]
    assert due == [5, 10]
    done = progress_at(5)
    done.evaluated_at = 5
    assert not done.is_evaluation_due()


def test_a_run_is_complete_only_after_the_evaluation_of_its_last_step() -> None:
    progress = progress_at(10)
    assert not progress.is_complete
    progress.evaluated_at = 10
    assert progress.is_complete


def test_a_restored_progress_continues_with_what_callbacks_changed() -> None:
    before, after = progress_at(4), progress_at(0)
    before.change_learning_rate(factor=0.5)
    before.change_order_seed(9)
    before.change_loss_weights(main=0.25, auxiliary=None)
    after.restore(before.get_state())
    assert after.get_state() == before.get_state()
    assert after.rate_at(4) == before.rate_at(4) == pytest.approx(0.05)


def test_a_run_that_stops_at_a_threshold_evaluates_again_after_a_restore() -> None:
    before = progress_at(5)
    before.evaluated_at = 5
    recipe = replace(RECIPE, evaluation=replace(RECIPE.evaluation, stop_threshold=0.9))
    after = progress_at(0, recipe)
    after.restore(before.get_state())
    assert (after.step, after.evaluated_at) == (5, -1)


def test_excluded_time_belongs_to_no_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("viaduct.training.progress.time.monotonic", lambda: now[0])
    watch = Stopwatch()
    now[0] = 110.0
    watch.exclude(4.0)
    assert watch.add_time("training") == 6.0
    now[0] = 113.0
    assert watch.add_time("evaluation") == 3.0
    assert watch.seconds == {"training": 6.0, "evaluation": 3.0, "checkpoints": 0.0}
