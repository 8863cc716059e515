"""Learning rates: each schedule is a factor of the optimizer's rate, a pure function of the step.

The formulas, with their check values, are section 12 of the network facts: `Steps` is TF official's,
`BookCosine` the book's, `Cosine` the usual half period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from viaduct.recipes import BookCosine, Constant, Cosine, Recipe, Steps


@dataclass(frozen=True)
class Pace:
    """How steps and epochs relate in one run."""

    images: int  # training pictures
    global_batch: int
    steps: int  # of the whole run

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.global_batch

    def epochs_at(self, step: int) -> float:
        return step * self.global_batch / self.images


def pace_of(recipe: Recipe, images: int) -> Pace:
    batch = recipe.data.global_batch
    return Pace(images, batch, recipe.steps or max(1, int(recipe.epochs * (images // batch))))


def rate_factor(recipe: Recipe, step: int, pace: Pace) -> float:
    """What the optimizer's learning rate is multiplied by at this step (counted from 0)."""
    match recipe.schedule:
        case Constant():
            return 1.0
        case Steps() as schedule:
            return piecewise(schedule, step, pace)
        case Cosine() as schedule:
            return half_cosine(schedule, step, pace)
        case BookCosine() as schedule:
            return book_cosine(schedule, step, pace)
        case own:
            return float(own(step, pace.steps))


def learning_rate(recipe: Recipe, step: int, images: int) -> float:
    """The learning rate at a step of a run over that many training pictures."""
    base = getattr(recipe.optimizer, "lr", 1.0)
    return base * rate_factor(recipe, step, pace_of(recipe, images))


def piecewise(schedule: Steps, step: int, pace: Pace) -> float:
    per_epoch = pace.images / pace.global_batch  # not rounded
    warmup = int(schedule.warmup_epochs * per_epoch)
    if step < warmup:
        return step / warmup
    # TensorFlow's piecewise_constant: a value holds up to and including its boundary.
    passed = sum(step > int(per_epoch * epoch) for epoch in schedule.boundaries)
    return schedule.factors[passed]


def half_cosine(schedule: Cosine, step: int, pace: Pace) -> float:
    warmup = int(schedule.warmup_epochs * pace.steps_per_epoch)
    warmup = min(warmup, pace.steps // 2)  # a run of few steps still has a descent
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, pace.steps - warmup)
    return schedule.floor + (1 - schedule.floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def book_cosine(schedule: BookCosine, step: int, pace: Pace) -> float:
    warmup = int(schedule.warmup_epochs * pace.steps_per_epoch)
    decay = pace.steps - warmup
    if step < warmup:
        return (step + 1) / warmup
    if decay <= 0:
        return 1.0
    linear = (pace.steps - step) / decay
    # The step is counted from 0, not from the end of the warm-up: so the listing has it.
    return linear * 0.5 * (1 + math.cos(2 * math.pi * 0.47 * step / decay)) + 1e-5
