"""Learning rates against the formulas and check values of the reference systems."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from training.tiny_runs import RECIPE, change_part
from viaduct.errors import ViaductError
from viaduct.recipes import (
    AmoebanetDecay,
    BookCosine,
    Constant,
    Cosine,
    LarsPolynomial,
    MindsporePolynomial,
    Recipe,
    ResnextDecay,
    Sgd,
    Steps,
    ThorDecay,
    V15Decay,
    load,
)
from viaduct.training.schedule import RunLength, compute_rate_factor, compute_run_length, learning_rate

IMAGENET, CIFAR = 1_281_167, 50_000


def recipe(schedule: object, *, lr: float = 1.0, batch: int = 256, **more: float) -> Recipe:
    changed = replace(RECIPE, optimizer=Sgd(lr=lr), schedule=schedule, **more)
    return change_part(changed, "data", global_batch=batch)


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
    assert compute_run_length(book, CIFAR).steps_per_epoch == 195
    assert learning_rate(book, 5000, CIFAR) == pytest.approx(0.06166325, abs=5e-9)


def test_the_books_cosine_warms_up_from_one_step_above_zero() -> None:
    book = recipe(BookCosine(warmup_epochs=5), lr=0.1, epochs=90)
    assert learning_rate(book, 0, CIFAR) == pytest.approx(0.1 / 975)
    assert learning_rate(book, 974, CIFAR) == 0.1


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.1), (90, 0.1), (92, 0.01), (135, 0.01), (137, 0.001), (181, 0.001)])
def test_resnet56_divides_its_rate_after_epochs_91_and_136(epoch: int, rate: float) -> None:
    r1 = load("resnet56_cifar10").recipe
    first = epoch * compute_run_length(r1, CIFAR).steps_per_epoch
    assert learning_rate(r1, first, CIFAR) == pytest.approx(rate)


def test_the_third_division_of_resnet56_comes_with_the_end_of_its_182_epochs() -> None:
    r1 = load("resnet56_cifar10").recipe
    boundary = int(182 * CIFAR / 128)
    assert compute_run_length(r1, CIFAR).steps <= boundary
    assert learning_rate(r1, boundary + 1, CIFAR) == pytest.approx(1e-4)


def test_a_cosine_falls_at_every_step_and_ends_at_its_floor() -> None:
    floored = recipe(Cosine(warmup_epochs=1, floor=0.05), batch=10, epochs=10)
    run_length = compute_run_length(floored, 100)
    factors = [compute_rate_factor(floored, step, run_length) for step in range(run_length.steps + 1)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1.0
    assert all(after < before for before, after in pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.05)
    assert compute_rate_factor(floored, run_length.steps + 50, run_length) == pytest.approx(0.05)


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


def test_a_schedule_of_the_user_gets_the_step_and_the_length_of_the_run() -> None:
    asked: list[tuple[int, int]] = []

    def falling(step: int, steps: int) -> float:
        asked.append((step, steps))
        return 1 - step / steps

    assert learning_rate(recipe(falling, lr=0.2, batch=10, epochs=4), 10, 100) == pytest.approx(0.15)
    assert asked == [(10, 40)]


def test_steps_win_over_epochs() -> None:
    assert compute_run_length(recipe(Constant(), batch=10, epochs=4), 105).steps == 40
    assert compute_run_length(recipe(Constant(), batch=10, epochs=4, steps=7), 105).steps == 7


def test_a_fraction_of_an_epoch_is_at_least_one_step() -> None:
    assert compute_run_length(recipe(Constant(), batch=10, epochs=0.5), 100).steps == 5
    assert compute_run_length(recipe(Constant(), batch=10, epochs=0.001), 100).steps == 1


def test_epochs_count_images_not_whole_batches() -> None:
    run_length = RunLength(images=105, global_batch=10, steps=20)
    assert run_length.steps_per_epoch == 10
    assert run_length.epochs_at(10) == pytest.approx(100 / 105)


def as_printed(value: float) -> object:
    """To the eight printed decimals, or as well as the references know it, which compute in float32."""
    return pytest.approx(value, rel=2e-7, abs=5e-9)


V15 = recipe(V15Decay(), lr=0.128, batch=128, epochs=90)
RESNEXT = recipe(ResnextDecay(), lr=0.1, epochs=120)
AMOEBANET = recipe(AmoebanetDecay(), lr=2.56, batch=64, epochs=35)
LARS = recipe(LarsPolynomial(), lr=1.0, batch=8192, epochs=90)
MINDSPORE = recipe(MindsporePolynomial(), lr=0.1, batch=32, epochs=90)
THOR = recipe(ThorDecay(end_epoch=70, power=6), lr=0.045, epochs=45)


@pytest.mark.parametrize(
    ("given", "step", "rate"),
    [
        pytest.param(recipe(Steps(), lr=0.128, epochs=90), 2502, 0.01279898, id="official"),
        pytest.param(V15, 80071, 0.12799841, id="v1.5"),
        pytest.param(RESNEXT, 12510, 0.05000628, id="resnext, going up"),
        pytest.param(RESNEXT, 312750, 0.04999978, id="resnext, going down"),
        pytest.param(AMOEBANET, 400360, 0.19856073, id="amoebanet"),
        pytest.param(LARS, 7037, 2.80333519, id="lars"),
    ],
)
def test_a_reference_has_its_check_value(given: Recipe, step: int, rate: float) -> None:
    assert learning_rate(given, step, IMAGENET) == as_printed(rate)


@pytest.mark.parametrize(
    ("name", "step", "rate"),
    [
        ("resnet50_imagenet", 2502, 0.01279898),
        ("resnet101_imagenet", 2502, 0.01279898),
        ("resnet50_v15_imagenet", 80071, 0.12799841),
        ("resnext50_imagenet", 12510, 0.05000628),
        ("resnext50_imagenet", 312750, 0.04999978),
        ("amoebanet_d_imagenet", 400360, 0.19856073),
        ("resnet50_cifar10", 5000, 0.06166325),
        ("resnet50_lars_imagenet", 7037, 2.80333519),
    ],
)
def test_a_recipe_by_its_name_has_the_check_value_of_its_reference(name: str, step: int, rate: float) -> None:
    assert learning_rate(name, step) == as_printed(rate)
    assert learning_rate(load(name).recipe, step) == learning_rate(name, step)


def test_epochs_of_v15_have_whole_steps() -> None:
    per_epoch = IMAGENET // 128
    for number, epoch in enumerate((30, 60, 80, 90)):
        assert learning_rate(V15, per_epoch * epoch, IMAGENET) == pytest.approx(0.128 * 0.1**number)
        assert learning_rate(V15, per_epoch * epoch + 1, IMAGENET) == pytest.approx(0.128 * 0.1 ** (number + 1))


def test_the_cosine_of_v15_is_counted_from_step_0_and_drops_where_the_warm_up_ends() -> None:
    cosine = replace(V15, schedule=V15Decay(mode="cosine"))
    steps, warmup = 90 * (IMAGENET // 128), 8 * (IMAGENET // 128)
    assert learning_rate(cosine, warmup - 1, IMAGENET) == pytest.approx(0.128 * (warmup - 1) / warmup)
    expected = 0.128 * 0.5 * (1 + math.cos(math.pi * 8 / 90))
    assert learning_rate(cosine, warmup, IMAGENET) == pytest.approx(expected)
    assert learning_rate(cosine, steps // 2, IMAGENET) == pytest.approx(0.064)
    assert learning_rate(cosine, steps + 7, IMAGENET) == 0


def test_a_run_of_v15_counted_in_batches_keeps_the_cosine_of_ninety_epochs() -> None:
    short = replace(V15, schedule=V15Decay(mode="cosine", iter_unit="batch", warmup_epochs=0), steps=1000)
    total = int(90 * IMAGENET / 128)
    assert learning_rate(short, 999, IMAGENET) == pytest.approx(0.064 * (1 + math.cos(math.pi * 999 / total)))
    assert learning_rate(short, 999, IMAGENET) > 0.127


def test_resnext_ends_at_its_floor_and_falls_below_it_afterwards() -> None:
    last = 120 * (IMAGENET // 256)
    assert learning_rate(RESNEXT, last - 1, IMAGENET) == pytest.approx(1e-7)
    assert learning_rate(RESNEXT, last, IMAGENET) < 1.001e-7
    assert learning_rate(RESNEXT, last + 1, IMAGENET) == pytest.approx(1e-8)


def test_the_other_modes_of_resnext() -> None:
    per_epoch, steps = IMAGENET // 256, 120 * (IMAGENET // 256)
    by_steps = replace(RESNEXT, schedule=ResnextDecay(mode="steps"))
    rates = [learning_rate(by_steps, int(epoch * per_epoch), IMAGENET) for epoch in (0, 29, 31, 61, 81)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001, 1e-4])
    poly = replace(RESNEXT, schedule=ResnextDecay(mode="poly"))
    rates = [learning_rate(poly, int(epoch * per_epoch), IMAGENET) for epoch in (0, 2.5, 5, 62.5, 120)]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.05, 0], abs=1e-9)
    linear = replace(RESNEXT, schedule=ResnextDecay(mode="linear", end=0.02))
    rates = [learning_rate(linear, step, IMAGENET) for step in (0, steps // 2, steps, steps + 9)]
    assert rates == pytest.approx([0.1, 0.06, 0.02, 0.02])


def test_resnext_on_one_card_has_a_constant_rate() -> None:
    one_card = change_part(replace(load("resnext50_imagenet").recipe, schedule=Constant(), steps=10_000), "data")
    assert {learning_rate(one_card, step) for step in (0, 999, 9_999)} == {0.1}


def test_amoebanet_starts_from_its_floor_and_falls_after_whole_epochs() -> None:
    per_epoch = IMAGENET // 64
    assert per_epoch == 20_018
    assert learning_rate(AMOEBANET, 0, IMAGENET) == pytest.approx(2.56e-4)
    assert learning_rate(AMOEBANET, 3503, IMAGENET) == pytest.approx(2.56 * 3503 / 7006)
    assert learning_rate(AMOEBANET, per_epoch - 1, IMAGENET) == 2.56
    assert learning_rate(AMOEBANET, per_epoch, IMAGENET) == pytest.approx(2.56 * 0.88)
    assert learning_rate(AMOEBANET, 100 * per_epoch, IMAGENET) == pytest.approx(2.56e-4)


@pytest.mark.parametrize(
    ("mode", "rates"),
    [
        ("cosine", [2.56 * 0.5 * (1 + math.cos(math.pi * epoch / 35)) for epoch in (9, 15, 25)]),
        ("constant", [2.56, 2.56, 2.56]),
        ("stepwise", [2.56, 0.256, 0.0256]),
    ],
)
def test_the_other_modes_of_amoebanet(mode: str, rates: list[float]) -> None:
    given = replace(AMOEBANET, schedule=AmoebanetDecay(mode=mode))
    found = [learning_rate(given, epoch * (IMAGENET // 64), IMAGENET) for epoch in (9, 15, 25)]
    assert found == pytest.approx(rates)


@pytest.mark.parametrize(
    ("batch", "peak", "epochs"), [(256, 5, 5), (8191, 5, 5), (8192, 10, 5), (16384, 25, 5), (32768, 32, 14)]
)
def test_the_peak_of_lars_goes_by_the_batch(batch: int, peak: float, epochs: int) -> None:
    given = change_part(LARS, "data", global_batch=batch)
    warmup = int(epochs * IMAGENET / batch)
    assert learning_rate(given, 0, IMAGENET) == 0
    assert learning_rate(given, warmup, IMAGENET) == peak
    assert learning_rate(given, warmup + 1, IMAGENET) < peak
    assert learning_rate(given, int(90 * IMAGENET / batch) + 2, IMAGENET) == pytest.approx(1e-4)


def test_the_peak_of_lars_can_be_given() -> None:
    given = replace(LARS, schedule=LarsPolynomial(peak=3.0, warmup_epochs=0))
    assert 2.99 < learning_rate(given, 1, IMAGENET) < 3.0


def test_mindspores_own_polynomial_rises_from_a_tenth_and_falls_as_a_square() -> None:
    per_epoch = CIFAR // 32
    rates = [learning_rate(MINDSPORE, int(epoch * per_epoch), CIFAR) for epoch in (0, 5, 47.5, 90, 91)]
    assert rates == pytest.approx([0.01, 0.1, 0.025, 0, 0], rel=1e-3)
    assert learning_rate(MINDSPORE, 3000, CIFAR) == pytest.approx(0.01 + 0.09 * 3000 / (5 * per_epoch))


def test_thor_falls_with_a_power_and_is_halved_at_39_and_at_40() -> None:
    per_epoch = IMAGENET // 256
    for epoch, halvings in ((1, 0), (38, 0), (39, 1), (40, 2), (45, 2)):
        last = epoch * per_epoch - 1
        expected = 0.045 * (1 - epoch / 70) ** 6 * 0.5**halvings
        assert learning_rate(THOR, last, IMAGENET) == pytest.approx(expected)
    assert learning_rate(THOR, 39 * per_epoch - 2, IMAGENET) > 1.9 * learning_rate(THOR, 39 * per_epoch - 1, IMAGENET)


def test_thor_is_zero_behind_its_end() -> None:
    assert learning_rate(THOR, 71 * (IMAGENET // 256), IMAGENET) == 0


def test_a_learning_rate_is_requested_by_name_or_recipe_without_torch() -> None:
    script = "import sys; from viaduct.training import learning_rate; "
    script += "print(learning_rate('resnext50_imagenet', step=12510), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    rate, torch_there = done.stdout.split()
    assert float(rate) == as_printed(0.05000628)
    assert torch_there == "False"


def test_the_data_set_of_a_recipe_has_its_own_size() -> None:
    assert learning_rate("resnet56_cifar10", 45_000) == learning_rate("resnet56_cifar10", 45_000, images=CIFAR)
    assert learning_rate("shapes_taster", 40) == learning_rate("shapes_taster", 40, images=6400)
    assert learning_rate("shapes_taster", 40) != learning_rate("shapes_taster", 40, images=12800)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnext5O_imagenet", 0), r"no recipe called 'resnext5O_imagenet'(.|\n)*Closest is 'resnext50_imagenet'"),
        (("resnext50_imagenet", -1), "step is -1; it must be a whole number, 0 or more"),
        (("resnext50_imagenet", 1.5), "step is 1.5; it must be a whole number"),
        (("resnext50_imagenet", "x"), "step is 'x'; it must be a whole number"),
        (("resnext50_imagenet", 0, "many"), "images is 'many'; it must be a whole number"),
        ((None, 1), "the recipe is None; it must be a Recipe or the name of one"),
        (("resnext50_imagenet", 0, 255), "images is 255; it must be at least one global batch of 256"),
        ((RECIPE, 0), r"the number of training images of arrays is not known(.|\n)*images=…"),
    ],
)
def test_what_has_no_learning_rate_is_refused_with_the_reason(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ViaductError, match=message):
        learning_rate(*arguments)


def test_no_schedule_leaves_the_numbers_on_a_very_short_run() -> None:
    for schedule in (V15Decay("cosine"), ResnextDecay(), ResnextDecay("poly"), AmoebanetDecay("cosine"), ThorDecay()):
        for steps in (1, 2, 3):
            short = recipe(schedule, batch=100, steps=steps)
            assert all(0 <= learning_rate(short, step, 100) <= 1 for step in range(steps + 2))
    tiny = recipe(LarsPolynomial(), batch=100, steps=1)
    assert all(math.isfinite(learning_rate(tiny, step, 100)) for step in range(9))
    assert math.isfinite(learning_rate(recipe(MindsporePolynomial(0), batch=100, steps=1), 1, 100))
