"""Learning rates against the formulas and check values of the reference systems."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from training.tiny import RECIPE, within
from viaduct.recipes import BookCosine, Constant, Cosine, Recipe, Sgd, Steps, load
from viaduct.training.schedule import Pace, learning_rate, pace_of, rate_factor

IMAGENET, CIFAR = 1_281_167, 50_000


def recipe(schedule: object, *, lr: float = 1.0, batch: int = 256, **more: float) -> Recipe:
    changed = replace(RECIPE, optimizer=Sgd(lr=lr), schedule=schedule, **more)
    return within(changed, "data", global_batch=batch)


def test_a_constant_rate_does_not_move() -> None:
    rates = {learning_rate(recipe(Constant(), lr=0.3), step, CIFAR) for step in (0, 1, 5000, 10**6)}
    assert rates == {0.3}


def test_a_boundary_is_not_seen_before_the_step_after_it() -> None:
    official = recipe(Steps(), epochs=90)
    factors = (1.0, 0.1, 0.01, 0.001, 1e-4)
    for number, boundary in enumerate((150136, 300273, 400364, 450410)):
        assert learning_rate(official, boundary, IMAGENET) == factors[number]
        assert learning_rate(official, boundary + 1, IMAGENET) == factors[number + 1]


def test_the_official_warm_up_takes_25022_steps_from_zero_to_the_peak() -> None:
    official = recipe(Steps(), lr=0.128, epochs=90)
    assert learning_rate(official, 0, IMAGENET) == 0
    assert learning_rate(official, 2502, IMAGENET) == pytest.approx(0.01279898, abs=5e-9)
    assert learning_rate(official, 25021, IMAGENET) < 0.128
    assert learning_rate(official, 25022, IMAGENET) == 0.128


def test_the_books_cosine_has_its_check_value() -> None:
    book = recipe(BookCosine(warmup_epochs=5), lr=0.1, epochs=90)
    assert pace_of(book, CIFAR).steps_per_epoch == 195
    assert learning_rate(book, 5000, CIFAR) == pytest.approx(0.06166325, abs=5e-9)


def test_the_books_cosine_warms_up_from_one_step_above_zero() -> None:
    book = recipe(BookCosine(warmup_epochs=5), lr=0.1, epochs=90)
    assert learning_rate(book, 0, CIFAR) == pytest.approx(0.1 / 975)
    assert learning_rate(book, 974, CIFAR) == 0.1


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.1), (90, 0.1), (92, 0.01), (135, 0.01), (137, 0.001), (181, 0.001)])
def test_resnet56_divides_its_rate_after_epochs_91_and_136(epoch: int, rate: float) -> None:
    r1 = load("resnet56_cifar10").recipe
    first = epoch * pace_of(r1, CIFAR).steps_per_epoch
    assert learning_rate(r1, first, CIFAR) == pytest.approx(rate)


def test_the_third_division_of_resnet56_comes_with_the_end_of_its_182_epochs() -> None:
    r1 = load("resnet56_cifar10").recipe
    boundary = int(182 * CIFAR / 128)
    assert pace_of(r1, CIFAR).steps <= boundary
    assert learning_rate(r1, boundary + 1, CIFAR) == pytest.approx(1e-4)


def test_a_cosine_falls_at_every_step_and_ends_at_its_floor() -> None:
    floored = recipe(Cosine(warmup_epochs=1, floor=0.05), batch=10, epochs=10)
    pace = pace_of(floored, 100)
    factors = [rate_factor(floored, step, pace) for step in range(pace.steps + 1)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1.0
    assert all(after < before for before, after in pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.05)
    assert rate_factor(floored, pace.steps + 50, pace) == pytest.approx(0.05)


def test_halfway_down_a_cosine_is_half_of_the_peak() -> None:
    halfway = learning_rate(recipe(Cosine(warmup_epochs=0), lr=0.4, batch=10, epochs=10), 50, 100)
    assert halfway == pytest.approx(0.2)


def test_a_cosine_of_few_steps_still_climbs_and_descends() -> None:
    short = recipe(Cosine(warmup_epochs=5), batch=10, steps=8)
    factors = [learning_rate(short, step, 1000) for step in range(8)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4] == 1.0
    assert factors[-1] < 0.2


@pytest.mark.parametrize("schedule", [Steps(), BookCosine()])
def test_a_run_shorter_than_its_warm_up_stays_on_the_ramp(schedule: Steps | BookCosine) -> None:
    short = recipe(schedule, batch=10, steps=8)
    factors = [learning_rate(short, step, 1000) for step in range(8)]
    assert all(after - before == pytest.approx(1 / 500) for before, after in pairwise(factors))
    assert factors[-1] < 0.02


def test_a_book_cosine_without_any_descent_is_finite() -> None:
    barely = recipe(BookCosine(warmup_epochs=1), batch=10, epochs=1)
    assert all(math.isfinite(learning_rate(barely, step, 100)) for step in range(11))


def test_a_schedule_of_ones_own_gets_the_step_and_the_length_of_the_run() -> None:
    asked: list[tuple[int, int]] = []

    def falling(step: int, steps: int) -> float:
        asked.append((step, steps))
        return 1 - step / steps

    assert learning_rate(recipe(falling, lr=0.2, batch=10, epochs=4), 10, 100) == pytest.approx(0.15)
    assert asked == [(10, 40)]


def test_steps_win_over_epochs() -> None:
    assert pace_of(recipe(Constant(), batch=10, epochs=4), 105).steps == 40
    assert pace_of(recipe(Constant(), batch=10, epochs=4, steps=7), 105).steps == 7


def test_a_fraction_of_an_epoch_is_at_least_one_step() -> None:
    assert pace_of(recipe(Constant(), batch=10, epochs=0.5), 100).steps == 5
    assert pace_of(recipe(Constant(), batch=10, epochs=0.001), 100).steps == 1


def test_epochs_count_pictures_not_whole_batches() -> None:
    pace = Pace(images=105, global_batch=10, steps=20)
    assert pace.steps_per_epoch == 10
    assert pace.epochs_at(10) == pytest.approx(100 / 105)
