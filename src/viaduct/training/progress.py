"""Progress of a run: the step it has reached, the rates and seeds of the steps to come, and the time it took."""

from __future__ import annotations

import math
import time
from typing import Any, cast

from viaduct.errors import BadValue
from viaduct.recipes import Recipe
from viaduct.training.schedule import RunLength, compute_rate_factor


class Progress:
    """Position of a run in its schedule, and the changes that callbacks have made to it."""

    def __init__(self, recipe: Recipe, run_length: RunLength, initial_rates: list[float]) -> None:
        # The learning rates that the schedule multiplies, one for each parameter group. Callbacks may change them.
        self.recipe, self.run_length, self.initial_rates = recipe, run_length, initial_rates
        self.steps = run_length.steps
        self.step = 0
        self.evaluated_at = -1  # step of the last evaluation; -1: none
        self.best: dict[str, Any] | None = None  # step and top1 of the best evaluation, with checkpoint.keep_best
        self.stop_reason: str | None = None
        self.order_seeds: list[tuple[int, int]] = []  # (first epoch, seed) for each change by a callback
        self.loss_weights = {"main": 1.0, "auxiliary": recipe.aux_weight}

    @property
    def epoch(self) -> float:
        """Number of images trained on, divided by the number of images of the dataset.

        At the end of an epoch it is a little below a whole number if the last images did not fill a batch.
        """
        return self.run_length.epochs_at(self.step)

    @property
    def is_epoch_end(self) -> bool:
        """Return True if the last step was the last of its epoch."""
        return self.step % self.run_length.steps_per_epoch == 0

    @property
    def is_complete(self) -> bool:
        """Return True if the run has reached its last step or was asked to stop, and this step was evaluated."""
        return (self.step >= self.steps or self.stop_reason is not None) and self.evaluated_at == self.step

    # Learning rates

    @property
    def rate(self) -> float:
        """Learning rate of the last step."""
        return self.rate_at(max(self.step - 1, 0))

    def rate_at(self, step: int) -> float:
        """Return the learning rate of the first parameter group at a step."""
        return self.rates_at(step)[0]

    def rates_at(self, step: int) -> list[float]:
        """Return the learning rates of all parameter groups at a step."""
        factor = compute_rate_factor(self.recipe, step, self.run_length)
        return [initial * factor for initial in self.initial_rates]

    def change_learning_rate(self, rate: float | None = None, factor: float | None = None) -> None:
        """Set the coming step's rate to `rate`, or multiply it by `factor`; later rates change by the same factor."""
        for name, value in (("rate", rate), ("factor", factor)):
            if value is not None and not is_non_negative(value):
                raise BadValue(f"change_learning_rate: {name} is {value!r}.", "It must be a number, 0 or more.")
        if (rate is None) == (factor is None):
            raise BadValue("change_learning_rate takes a rate or a factor.", "One of them: factor=0.1")
        if factor is None:
            planned = self.rate_at(min(self.step, self.steps - 1))
            if not planned > 0:
                raise BadValue(
                    f"change_learning_rate: the schedule's rate is {planned:g} here; no factor makes it {rate:g}."
                )
            factor = cast(float, rate) / planned
        self.initial_rates = [initial * factor for initial in self.initial_rates]

    # Sample order and loss weights

    def order_seed_of(self, epoch: int) -> int:
        """Return the seed of an epoch's sample order and augmentation: the recipe's, unless a callback changed it."""
        changed = [seed for first, seed in self.order_seeds if first <= epoch]
        return changed[-1] if changed else self.recipe.seed

    def change_order_seed(self, seed: int) -> None:
        """Use this seed for the order and augmentation of the epochs that have not begun."""
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            hint = "It must be a whole number, at least 0 and below 2**63."
            raise BadValue(f"change_order_seed: {seed!r} is no seed.", hint)
        first = math.ceil(self.step / self.run_length.steps_per_epoch)  # first epoch that has not begun
        self.order_seeds = [change for change in self.order_seeds if change[0] != first] + [(first, seed)]

    def change_loss_weights(self, main: float | None, auxiliary: float | None) -> None:
        """Change the weights of the main loss and of the auxiliary head's loss; None leaves a weight unchanged."""
        weights = {"main": main, "auxiliary": auxiliary}
        for name, weight in weights.items():
            if weight is not None and not is_non_negative(weight):
                raise BadValue(f"change_loss_weights: {name} is {weight!r}.", "It must be a number, 0 or more.")
        self.loss_weights |= {name: float(weight) for name, weight in weights.items() if weight is not None}

    # Evaluations

    @property
    def evaluation_every(self) -> int:
        """Steps between evaluations; 0: only the last step is evaluated."""
        epochs = self.recipe.evaluation.every_epochs
        return max(1, round(epochs * self.run_length.steps_per_epoch)) if epochs > 0 else 0

    def is_evaluation_due(self) -> bool:
        """Return True if this step is to be evaluated and has not been yet."""
        if self.step == self.evaluated_at or self.step == 0:
            return False
        every = self.evaluation_every
        return (every > 0 and self.step % every == 0) or self.step >= self.steps

    # Checkpoints

    def get_state(self) -> dict[str, Any]:
        """Return the progress's part of a checkpoint."""
        return {
            "step": self.step,
            "evaluated_at": self.evaluated_at,
            "best": self.best,
            "initial_rates": self.initial_rates,
            "order_seeds": self.order_seeds,
            "loss_weights": self.loss_weights,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self.evaluated_at, self.best = state["step"], state["evaluated_at"], state["best"]
        if self.step >= self.steps or self.recipe.evaluation.stop_threshold:
            self.evaluated_at = -1  # evaluate again, because a checkpoint has neither the score nor the stop reason
        self.initial_rates = state["initial_rates"]
        self.order_seeds = [(first, seed) for first, seed in state.get("order_seeds", [])]
        self.loss_weights = {**self.loss_weights, **state.get("loss_weights", {})}


class Stopwatch:
    """Seconds of a run by activity: training, evaluation, checkpoints.

    The time since the last `restart` or `add_time` is called the open window.
    """

    def __init__(self) -> None:
        self.seconds = {"training": 0.0, "evaluation": 0.0, "checkpoints": 0.0}
        self._window_start = time.monotonic()

    def restart(self) -> None:
        """Begin a new window; the open one is added to no activity."""
        self._window_start = time.monotonic()

    def exclude(self, seconds: float) -> None:
        """Leave seconds, such as those of writing a profile, out of the open window."""
        self._window_start += seconds

    def add_time(self, activity: str) -> float:
        """Add the open window to an activity, begin a new one, and return the seconds added."""
        now = time.monotonic()
        seconds = now - self._window_start
        self.seconds[activity] += seconds
        self._window_start = now
        return seconds


def is_non_negative(value: Any) -> bool:
    """Return True for a finite number that is not below 0."""
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
