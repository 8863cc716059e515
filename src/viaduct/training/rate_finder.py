"""Learning-rate range test: a number of steps with a rate that rises exponentially, fewer if the loss diverges.

The network begins with the recipe's initial weights and is trained in a temporary folder; no run directory is read or
written. `viaduct.runs.rate_range` evaluates the losses.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from viaduct import devices
from viaduct.recipes import AdamW, Constant, Lars, Log, Recipe
from viaduct.training.images import load_images
from viaduct.training.interrupt import Interrupt
from viaduct.training.limits import explain_limits
from viaduct.training.loop import Training
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.transfer import load_initial_weights

STEPS = 200  # number of steps unless the user gives another one
DIVERGENCE_RATIO = 4.0  # the test ends when the running mean of the loss is more than this many times its lowest value
MEAN_DECAY = 0.9  # of the running mean
# Lowest and highest rate by optimizer.
RANGES: dict[type, tuple[float, float]] = {AdamW: (1e-7, 1.0), Lars: (1e-3, 100.0)}
DEFAULT_RANGE = (1e-5, 10.0)


@dataclass(frozen=True)
class RateTest:
    """Result of a learning-rate range test: learning rate and loss of each step."""

    rates: list[float]
    losses: list[float]
    interrupted: bool = False  # True if a signal ended the test


def choose_range(recipe: Recipe) -> tuple[float, float]:
    """Return the lowest and the highest rate of a test with this recipe's optimizer."""
    return RANGES.get(type(recipe.optimizer), DEFAULT_RANGE)


def compute_rate(step: int, steps: int, low: float, high: float) -> float:
    """Return the rate of a step, counted from 0; the rates form a geometric sequence."""
    return float(low * (high / low) ** (step / max(1, steps - 1)))


def measure_rates(request: TrainingRequest, steps: int) -> RateTest:
    """Train for some steps with rising rates; end early if the loss diverges."""
    low, high = choose_range(request.loaded.recipe)
    device, torch_device = devices.pick(request.device)
    images = load_images(request.loaded.recipe.data, request.data)
    with tempfile.TemporaryDirectory(prefix="viaduct-rates-") as folder, Interrupt(saves=False) as interrupt:
        run = RunDir(Path(folder))
        recipe = prepare_recipe(request.loaded.recipe, steps)
        with explain_limits(run, recipe):
            training = Training(recipe, run, images, device, torch_device, callbacks=[])
            with training.train_batches, training.validation:
                if recipe.init.source:
                    load_initial_weights(training.train_step)
                return take_steps(training, steps, low, high, lambda: interrupt.received is not None)


def prepare_recipe(recipe: Recipe, steps: int) -> Recipe:
    """Return the recipe with a constant schedule, and without sinks, callbacks and averaged weights."""
    log = Log(every_steps=steps + 1)
    init = replace(recipe.init, schedule="restart")  # begin at step 0, even with initial weights of another run
    return replace(recipe, schedule=Constant(), steps=steps, sink=0, log=log, init=init, callbacks=(), ema=None)


def take_steps(training: Training, steps: int, low: float, high: float, is_interrupted: Callable[[], bool]) -> RateTest:
    """Take steps whose rate rises from `low` to `high`; the rates of the parameter groups keep their ratios."""
    rates: list[float] = []
    losses: list[float] = []
    batches = training.iterate_batches()
    training.set_training_mode()
    groups: list[Any] = training.optimizer.param_groups
    initial_rates = [float(group["lr"]) for group in groups]
    ratios = [rate / initial_rates[0] if initial_rates[0] > 0 else 1.0 for rate in initial_rates]
    while len(losses) < steps and not is_interrupted():
        rate = compute_rate(len(losses), steps, low, high)
        training.progress.initial_rates = [rate * ratio for ratio in ratios]
        training.run_step(next(batches))
        loss, _ = training.train_step.results.pop()
        rates.append(rate)
        losses.append(float(loss))
        if has_diverged(losses):
            break
    return RateTest(rates, losses, is_interrupted())


def has_diverged(losses: list[float]) -> bool:
    """Return True if the running mean of the losses is not finite, or too many times its lowest value."""
    mean, lowest = losses[0], math.inf
    for count, loss in enumerate(losses):
        mean = MEAN_DECAY * mean + (1 - MEAN_DECAY) * loss if count else loss
        if not math.isfinite(mean):
            return True
        lowest = min(lowest, mean)
    return mean > DIVERGENCE_RATIO * abs(lowest)
