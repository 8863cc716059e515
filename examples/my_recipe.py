"""A recipe with its own network, loss, optimizer, schedule, images and callback, in one file.

    viaduct train examples/my_recipe.py --run runs/mine

Fields that a recipe does not set have their defaults. `--set` and the other flags work as with the shipped recipes.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.recipes import Arrays, Evaluation, ImageSet, Log, Recipe, Split
from viaduct.training import Callback, LogRecord

NAMES = ("bright left", "bright right", "bright above", "bright below")


def make_images(path: object) -> ImageSet:
    """Return images of noise that are brighter on one side, which is the class; a function may return any arrays."""
    generator = np.random.default_rng(0)

    def draw(count: int) -> Split:
        labels = generator.integers(0, len(NAMES), count)
        ramp = np.linspace(0, 90, 16)
        sides = [np.tile(ramp[::-1], (16, 1)), np.tile(ramp, (16, 1))]
        sides += [sides[0].T, sides[1].T]
        noise = generator.integers(0, 160, (count, 16, 16, 3))
        return Split((noise + np.stack(sides)[labels][..., None]).astype(np.uint8), labels)

    return ImageSet(draw(1024), draw(256), NAMES)


class SmallNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3))
        self.head = nn.Linear(32 * 5 * 5, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(F.relu(self.body(images)).flatten(1))


def focal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy with lower weights for images that are already classified well (Lin et al. 2017)."""
    entropy = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - torch.exp(-entropy)) ** 2 * entropy).mean()


class StopWhenConverged(Callback):
    """Ends the run when the training loss was below 0.01 in three log lines in a row."""

    def start(self, training: Any) -> None:
        self.small_losses = 0

    def log(self, training: Any, record: LogRecord) -> None:
        self.small_losses = self.small_losses + 1 if record.loss < 0.01 else 0
        if self.small_losses == 3:
            training.request_stop(f"the loss is {record.loss:.4f}: nothing left to learn")


recipe = Recipe(
    model=SmallNet,
    data=Arrays(global_batch=64, size=16, classes=len(NAMES), flip=False, make=make_images),
    optimizer=lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
    schedule=lambda step, steps: 1.0 - step / steps,
    loss=focal_loss,
    epochs=10,
    evaluation=Evaluation(every_epochs=2),
    log=Log(every_steps=20),
    callbacks=(StopWhenConverged(),),
)
