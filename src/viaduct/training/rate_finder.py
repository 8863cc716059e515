"""Learning-rate range test: steps with a rate that rises exponentially, until the loss diverges.

Nothing of a run is read or written: the network begins as the recipe's would, is trained for some hundred steps in a
temporary folder and thrown away. What the losses say is read by `viaduct.runs.rate_range`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from viaduct import devices
from viaduct.recipes import AdamW, Lars, Log, Recipe
from viaduct.training.interrupt import Interrupt
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir
from viaduct.training.session import Request, explain_limits, load_images
from viaduct.training.transfer import load_initial_weights

STEPS = 200
DIVERGED = 4.0
"""A mean loss this many times the lowest one has diverged, whatever comes after it."""
MEMORY = 0.9
"""Share that the mean keeps of what it was, in each step; only for the decision to end."""
RANGES: dict[type, tuple[float, float]] = {AdamW: (1e-7, 1.0), Lars: (1e-3, 100.0)}
USUAL_RANGE = (1e-5, 10.0)


@dataclass(frozen=True)
class Measured:
    """The loss of each step, and the rate that it was taken with."""

    rates: list[float]
    losses: list[float]
    interrupted: bool = False


def choose_range(recipe: Recipe) -> tuple[float, float]:
    """Return the lowest and the highest rate of a test with this recipe's optimizer."""
    return RANGES.get(type(recipe.optimizer), USUAL_RANGE)


def rate_at(step: int, steps: int, low: float, high: float) -> float:
    return float(low * (high / low) ** (step / max(1, steps - 1)))


def measure_rates(request: Request, steps: int = STEPS) -> Measured:
    """Train for some steps with rising rates; ends early where the loss diverges."""
    low, high = choose_range(request.loaded.recipe)
    device, torch_device = devices.pick(request.device)
    images = load_images(request.loaded.recipe.data, request.data)
    with tempfile.TemporaryDirectory(prefix="viaduct-rates-") as folder, Interrupt() as interrupt:
        run = RunDir(Path(folder))
        recipe = rising(request.loaded.recipe, steps)
        with explain_limits(run, recipe):
            training = Training(recipe, run, images, device, torch_device, callbacks=[])
            with training.train_batches, training.validation:
                if recipe.init.source:
                    load_initial_weights(training)
                return take_steps(training, steps, low, high, lambda: interrupt.received is not None)


def rising(recipe: Recipe, steps: int) -> Recipe:
    """Return the recipe without its own schedule, evaluations and sinks: every step returns its loss."""
    constant: Callable[[int, int], float] = lambda step, steps: 1.0  # noqa: E731
    log = Log(every_steps=steps + 1)
    init = replace(recipe.init, schedule="restart")
    return replace(recipe, schedule=constant, steps=steps, sink=0, log=log, init=init, callbacks=(), ema=None)


def take_steps(training: Training, steps: int, low: float, high: float, is_interrupted: Callable[[], bool]) -> Measured:
    rates: list[float] = []
    losses: list[float] = []
    batches = training.iterate_batches()
    training.set_training_mode()
    parts: list[Any] = training.optimizer.param_groups
    scales = [float(part["lr"]) for part in parts]
    relative = [scale / scales[0] if scales[0] > 0 else 1.0 for scale in scales]
    while len(losses) < steps and not is_interrupted():
        rate = rate_at(len(losses), steps, low, high)
        training.progress.initial_rates = [rate * share for share in relative]
        training.run_step(next(batches))
        loss, _ = training.train_step.results.pop()
        rates.append(rate)
        losses.append(float(loss))
        if has_diverged(losses):
            break
    return Measured(rates, losses, is_interrupted())


def has_diverged(losses: list[float]) -> bool:
    """Return True once the mean loss is not finite, or several times the lowest one."""
    mean, lowest = losses[0], math.inf
    for count, loss in enumerate(losses):
        mean = MEMORY * mean + (1 - MEMORY) * loss if count else loss
        if not math.isfinite(mean):
            return True
        lowest = min(lowest, mean)
    return mean > DIVERGED * abs(lowest)
