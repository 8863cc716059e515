"""The smallest real run: 40 images of four colours, three networks of a few hundred weights.

Five steps make an epoch (batches of eight); 18 validation images make three batches, the last one partial.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from viaduct import devices
from viaduct.recipes import Arrays, Checkpoint, ImageSet, Log, Precision, Recipe, Sgd, Split
from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.loop import Training
from viaduct.training.metrics import Score
from viaduct.training.rundir import RunDir

CLASSES, PER_EPOCH, VALIDATION = 4, 5, 18
COLOURS = np.array([[220, 40, 40], [40, 220, 40], [40, 40, 220], [200, 200, 200]])


def make_split(count: int, seed: int) -> Split:
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % CLASSES
    noise = rng.integers(-40, 36, (count, 16, 16, 3))
    return Split((COLOURS[labels][:, None, None] + noise).astype(np.uint8), labels)


def make_images(path: Path | None) -> ImageSet:
    return ImageSet(make_split(40, seed=1), make_split(VALIDATION, seed=2), ("red", "green", "blue", "grey"))


def build_plain_network(classes: int) -> nn.Module:
    """Build a network without batch norm and without random operators."""
    layers = nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes)
    return nn.Sequential(*layers)


def build_normed_network(classes: int) -> nn.Module:
    layers = nn.Conv2d(3, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, classes))


def build_dropout_network(classes: int) -> nn.Module:
    """Build a network with dropout, whose every training step draws random numbers."""
    return nn.Sequential(*build_normed_network(classes).children(), nn.Dropout(0.3))


def build_two_rate_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Build SGD with two parameter groups, one with a tenth of the other's rate."""
    return torch.optim.SGD([{"params": parameters[:2], "lr": 0.2}, {"params": parameters[2:], "lr": 0.02}])


RECIPE = Recipe(
    model=build_plain_network,
    data=Arrays(global_batch=8, size=16, classes=CLASSES, flip=True, pad=2, make=make_images),
    optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=1e-3),
    epochs=2,
    precision=Precision("fp32"),
    checkpoint=Checkpoint(every_minutes=0),
    log=Log(every_steps=1),
    sink=0,
)


def build_training(recipe: Recipe, run: RunDir, *callbacks: Callback, **more: Any) -> Training:
    """Return a training that is ready to `fit`."""
    device, device_name = devices.pick(os.environ.get("VIADUCT_TEST_DEVICE", "cpu"))
    return Training(recipe, run, make_images(None), device, device_name, list(callbacks), **more)


def train_recipe(recipe: Recipe, run: RunDir, *callbacks: Callback, **more: Any) -> Training:
    done = build_training(recipe, run, *callbacks, **more)
    with done.train_batches, done.validation:
        done.fit()
    return done


def copy_weights(run: Training) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in run.model.state_dict().items()}


class Recorder(Callback):
    """Records every event with its step, and keeps log records and scores."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.logs: list[LogRecord] = []
        self.scores: list[Score] = []

    def start(self, training: Training) -> None:
        self.events.append(("start", training.step))

    def log(self, training: Training, record: LogRecord) -> None:
        self.events.append(("log", training.step))
        self.logs.append(record)

    def evaluating(self, training: Training, done: int, total: int) -> None:
        self.events.append((f"evaluating {done}/{total}", training.step))

    def evaluation(self, training: Training, score: Score) -> None:
        self.events.append(("evaluation", training.step))
        self.scores.append(score)

    def step(self, training: Training) -> None:
        self.events.append(("step", training.step))

    def checkpoint(self, training: Training, saved: SavedCheckpoint) -> None:
        self.events.append(("checkpoint", training.step))

    def end(self, training: Training, outcome: str) -> None:
        self.events.append((f"end: {outcome}", training.step))

    def at(self, kind: str) -> list[int]:
        return [step for event, step in self.events if event == kind]


class After(Callback):
    """Calls `action` once, after the optimizer step with this number."""

    def __init__(self, number: int, action: Callable[[Training], None]) -> None:
        self.number, self.action = number, action

    def step(self, training: Training) -> None:
        if training.step == self.number:
            self.action(training)


def change_part(recipe: Recipe, part: str, **changes: Any) -> Recipe:
    """Return the recipe with some fields of one part changed."""
    return replace(recipe, **{part: replace(getattr(recipe, part), **changes)})
