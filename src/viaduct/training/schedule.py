"""Learning rates: each schedule is a factor of the optimizer's rate, a pure function of the step.

    from viaduct.training import learning_rate
    learning_rate("resnet50_cifar10", 1000)             0.09905989

`Steps` is the schedule of TensorFlow's official models, `BookCosine` that of a listing of the CANN book (docs/seeds.md,
document 002), `Cosine` the usual half period; the others are named after their network, optimizer or framework. The
optimizer's rate is not scaled with `--batch`. Only the default peak and warm-up of `LarsPolynomial` depend on
the batch, as in TensorFlow's official models.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from viaduct.data.source import Source
from viaduct.errors import BadValue
from viaduct.recipes import (
    AmoebanetDecay,
    BookCosine,
    Cifar10,
    Constant,
    Cosine,
    LarsPolynomial,
    MindsporePolynomial,
    Recipe,
    Records,
    ResnextDecay,
    Shapes,
    Steps,
    ThorDecay,
    V15Decay,
    load,
)

LIST_HINT = "`viaduct train --list` shows the recipes."


@dataclass(frozen=True)
class RunLength:
    """Length of a run in steps, and of an epoch in images."""

    images: int  # number of training images
    global_batch: int
    steps: int  # number of steps of the whole run
    exact_steps: float = 0.0  # the same, of epochs that are not rounded down to whole batches
    peak: float = 1.0  # the optimizer's learning rate, which the schedule multiplies

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches in an epoch."""
        return self.images // self.global_batch

    def epochs_at(self, step: int) -> float:
        """Return how many images the first `step` steps take, divided by the number of training images."""
        return step * self.global_batch / self.images


def compute_run_length(recipe: Recipe, images: int) -> RunLength:
    """Return the length of a run of the recipe with this number of training images."""
    batch = recipe.data.global_batch
    steps = recipe.steps or max(1, int(recipe.epochs * (images // batch)))
    return RunLength(images, batch, steps, recipe.steps or recipe.epochs * images / batch, get_peak_rate(recipe))


def learning_rate(recipe: Recipe | str, step: int, images: int | None = None) -> float:
    """Return the learning rate of a recipe, given itself or by name, at a step counted from 0.

    `images` is the number of training images, by default that of the recipe's dataset.
    """
    if isinstance(recipe, str):
        recipe = load(recipe).recipe
    if not isinstance(recipe, Recipe):
        raise BadValue(f"the recipe is {recipe!r}; it must be a Recipe or the name of one.", LIST_HINT)
    step = check_count(step, "step")
    images = count_training_images(recipe.data) if images is None else check_count(images, "images")
    if images < recipe.data.global_batch:
        raise BadValue(f"images is {images}; it must be at least one global batch of {recipe.data.global_batch}.")
    return get_peak_rate(recipe) * compute_rate_factor(recipe, step, compute_run_length(recipe, images))


def check_count(value: Any, name: str) -> int:
    """Return a whole number of 0 or more; raise BadValue for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise BadValue(f"{name} is {value!r}; it must be a whole number, 0 or more.")
    return number


def count_training_images(data: Source) -> int:
    """Return the number of training images of the source's dataset; records are assumed to be ImageNet's.

    Raise BadValue for a dataset whose number of images is known only once it is read.
    """
    if isinstance(data, Cifar10 | Records | Shapes):
        return data.usual_image_count
    message = f"the number of training images of {data.name} is not known before they are read."
    raise BadValue(message, "Give it: learning_rate(recipe, step, images=…).")


def get_peak_rate(recipe: Recipe) -> float:
    """Return the recipe's learning rate; 1 if the optimizer is a function of the recipe's author."""
    rate: float = getattr(recipe.optimizer, "lr", 1.0)
    return rate


def compute_rate_factor(recipe: Recipe, step: int, run_length: RunLength) -> float:
    """Return the factor of the optimizer's learning rate at this step (counted from 0)."""
    for kind in type(recipe.schedule).__mro__:
        if kind in FORMULAS:
            return FORMULAS[kind](recipe.schedule, step, run_length)
    users_function: Any = recipe.schedule
    return float(users_function(step, run_length.steps))


def compute_stepwise_decay(schedule: Steps, step: int, run_length: RunLength) -> float:
    per_epoch = run_length.images / run_length.global_batch  # not rounded
    warmup = int(schedule.warmup_epochs * per_epoch)
    if step < warmup:
        return step / warmup
    return schedule.factors[count_passed(schedule.boundaries, step, per_epoch)]


def count_passed(boundaries: tuple[float, ...], step: int, per_epoch: float) -> int:
    """Return how many boundaries, in epochs, are before a step; one at the step itself is not, as in TensorFlow."""
    return sum(step > int(per_epoch * epoch) for epoch in boundaries)


def compute_falling_cosine(done: float) -> float:
    """Return the half cosine that falls from 1 to 0 while `done` goes from 0 to 1."""
    return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def compute_cosine(schedule: Cosine, step: int, run_length: RunLength) -> float:
    warmup = int(schedule.warmup_epochs * run_length.steps_per_epoch)
    warmup = min(warmup, run_length.steps // 2)  # so that the rate also falls in a run of few steps
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, run_length.steps - warmup)
    return schedule.floor + (1 - schedule.floor) * compute_falling_cosine(done)


def compute_book_cosine(schedule: BookCosine, step: int, run_length: RunLength) -> float:
    warmup = int(schedule.warmup_epochs * run_length.steps_per_epoch)
    decay = run_length.steps - warmup
    if step < warmup:
        return (step + 1) / warmup
    if decay <= 0:
        return 1.0
    linear = (run_length.steps - step) / decay
    # As in the listing, the step is counted from 0, not from the end of the warm-up; 0.47 is the listing's, too.
    return linear * 0.5 * (1 + math.cos(2 * math.pi * 0.47 * step / decay)) + 1e-5


def compute_v15_decay(schedule: V15Decay, step: int, run_length: RunLength) -> float:
    warmup = int(schedule.warmup_epochs * run_length.steps_per_epoch)
    if step < warmup:
        return step / warmup
    if schedule.mode == "steps":
        return schedule.factors[count_passed(schedule.boundaries, step, run_length.steps_per_epoch)]
    # The cosine begins at step 0, so the rate drops a little where the warm-up ends. iter_unit "batch": 90 epochs.
    total = run_length.steps if schedule.iter_unit == "epoch" else 90 * run_length.images // run_length.global_batch
    return compute_falling_cosine(step / total)


def compute_half_cosine_decay(schedule: ResnextDecay, step: int, run_length: RunLength) -> float:
    """Return the factor of a half-cosine warm-up and a cosine, or of the modes steps, linear and poly."""
    peak = run_length.peak  # `end` may be a learning rate, not a factor of the peak
    warmup = int(schedule.warmup_epochs * run_length.steps_per_epoch)
    match schedule.mode:
        case "steps":
            return float(0.1 ** count_passed(schedule.boundaries, step, run_length.steps_per_epoch))
        case "linear":
            end = schedule.end / peak if peak else 0.0
            return 1 + (end - 1) * min(step / run_length.steps, 1.0)
        case "poly":
            left = (run_length.steps - step) / max(1, run_length.steps - warmup)
            return step / warmup if step < warmup else max(left, 0.0)
    # Mode cosine.
    if step < warmup:
        return 1 - compute_falling_cosine((step + 1) / warmup)
    if step > run_length.steps:  # then the reference's rate is a hundredth of `end`
        return 0.01 * schedule.end / peak if peak else 0.0
    # `done` is not limited to 1: at step `run_length.steps` the reference is one step past the bottom of its cosine.
    done = (step - warmup + 1) / max(1, run_length.steps - warmup)
    return (1 - schedule.end) * 0.5 * (1 + math.cos(math.pi * done)) + schedule.end


def compute_amoebanet_decay(schedule: AmoebanetDecay, step: int, run_length: RunLength) -> float:
    warmup, factor = int(schedule.warmup_epochs * run_length.steps_per_epoch), 1.0
    if step < warmup:
        factor = step / warmup
    elif schedule.mode == "exponential":
        factor = float(schedule.decay ** (step // run_length.steps_per_epoch))
    elif schedule.mode == "cosine":
        factor = compute_falling_cosine(step / run_length.steps)
    elif schedule.mode == "stepwise":
        factor = float(0.1 ** count_passed(schedule.boundaries, step, run_length.steps_per_epoch))
    return max(factor, schedule.floor)


def compute_lars_polynomial(schedule: LarsPolynomial, step: int, run_length: RunLength) -> float:
    default_peak, default_epochs = choose_lars_defaults(run_length.global_batch)
    peak = default_peak if schedule.peak is None else schedule.peak
    epochs = default_epochs if schedule.warmup_epochs is None else schedule.warmup_epochs
    warmup = int(epochs * run_length.images / run_length.global_batch)
    if step <= warmup and warmup:
        return peak * step / warmup
    span = max(1.0, run_length.exact_steps - warmup + 1)  # steps of the decay, as the reference counts them
    done = min(max(1, step - warmup), span) / span
    return (peak - schedule.end) * (1 - done) ** 2 + schedule.end


def choose_lars_defaults(global_batch: int) -> tuple[float, float]:
    """Return the peak rate and warm-up epochs that TF official uses for a batch size."""
    for below, peak in ((8192, 5.0), (16384, 10.0), (32768, 25.0)):
        if global_batch < below:
            return peak, 5
    return 32.0, 14


def compute_mindspore_polynomial(schedule: MindsporePolynomial, step: int, run_length: RunLength) -> float:
    warmup = int(schedule.warmup_epochs * run_length.steps_per_epoch)
    if step < warmup:
        return schedule.start + (1 - schedule.start) * step / warmup
    left = (run_length.steps - step) / max(1, run_length.steps - warmup)
    return max(left, 0.0) ** 2


def compute_thor_decay(schedule: ThorDecay, step: int, run_length: RunLength) -> float:
    epoch = (step + 1) / run_length.steps_per_epoch
    left = max(1 - epoch / schedule.end_epoch, 0.0)
    halvings = sum(epoch >= start for start in schedule.halve_at)
    return float(left**schedule.power * 0.5**halvings)


FORMULAS: dict[type, Callable[[Any, int, RunLength], float]] = {
    Constant: lambda schedule, step, run_length: 1.0,
    Steps: compute_stepwise_decay,
    Cosine: compute_cosine,
    BookCosine: compute_book_cosine,
    V15Decay: compute_v15_decay,
    ResnextDecay: compute_half_cosine_decay,
    LarsPolynomial: compute_lars_polynomial,
    AmoebanetDecay: compute_amoebanet_decay,
    MindsporePolynomial: compute_mindspore_polynomial,
    ThorDecay: compute_thor_decay,
}
