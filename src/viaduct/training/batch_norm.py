"""Running averages (running statistics) of batch norms: recompute them, and measure whether they have settled.

In training a batch norm uses the statistics of the current batch, in evaluation its running averages. After n steps
with momentum m these have gone 1 - (1 - m)^n of the way from their initial values, so a short run may classify training
batches well and validation images badly. `check_running_statistics` scores the network with its averages and with
recomputed ones.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from viaduct.data.batches import Batch, BatchStream
from viaduct.data.source import Dataset
from viaduct.devices.base import Device
from viaduct.errors import BadValue
from viaduct.recipes import Recipe
from viaduct.training import checkpoint
from viaduct.training.freezing import freeze, set_frozen_norms_to_evaluation
from viaduct.training.networks import build_model, place_model
from viaduct.training.optim import Loss, build_loss
from viaduct.training.precision import Computation, plan_precision

TRAINING_BATCHES, VALIDATION_BATCHES = 32, 8  # of a check; fewer if they take longer than MAX_SECONDS
MAX_SECONDS = 30.0  # for the training batches, and again for the first scoring of the validation batches
# A check is made if the validation loss is more than LOSS_RATIO times the training loss, or top-1 is lower by more than
# TOP1_GAP, a share of the images.
LOSS_RATIO, TOP1_GAP = 2.0, 0.1
TOP1_GAIN = 0.05  # averages are unsettled if recomputed ones lower the loss and raise top-1 by at least this share


@dataclass(frozen=True)
class StatisticsCheck:
    """Scores of the same validation images with a checkpoint's running averages and with recomputed ones."""

    training_batches: int  # number of batches from which the averages were recomputed
    images: int  # number of validation images
    top1: float
    loss: float
    recomputed_top1: float
    recomputed_loss: float
    steps: int  # training steps of the checkpoint
    momentum: float | None  # of the batch norms; None if they differ, or keep a plain mean of all batches

    @property
    def is_unsettled(self) -> bool:
        """Return True if recomputed averages score clearly better."""
        return self.recomputed_top1 >= self.top1 + TOP1_GAIN and self.recomputed_loss < self.loss

    def to_record(self) -> dict[str, Any]:
        return {**asdict(self), "unsettled": self.is_unsettled}

    def describe(self, run: Path) -> Iterator[str]:
        """Yield lines for the user about averages that have not settled: both measurements, and what to do."""
        reason = ""
        if self.momentum is not None:
            percent = 100 * (1 - (1 - self.momentum) ** self.steps)
            steps = f"after {self.steps:,} steps with momentum {self.momentum:g}"
            reason = f": {steps} they have gone {percent:.0f} % of the way"
        yield f"The running averages of the batch norms have not settled{reason}."
        yield (
            f"  Top-1 on {self.images:,} validation images is {100 * self.top1:.1f} % (loss {self.loss:.4g}) with "
            f"them, and {100 * self.recomputed_top1:.1f} % (loss {self.recomputed_loss:.4g}) with averages "
            f"recomputed from {self.training_batches} training batches."
        )
        command = f"viaduct evaluate {shlex.quote(str(run))} --recompute-batch-norm 100 --save FILE.safetensors"
        yield f"  Train longer, or recompute the averages: {command}"


def looks_unsettled(training: dict[str, Any], validation: dict[str, Any]) -> bool:
    """Return True if an evaluation is so much worse than the last log line that the averages should be checked."""
    loss = math.nan if training["loss"] is None else training["loss"]  # metrics.jsonl has null for NaN
    has_larger_loss = not validation["loss"] <= LOSS_RATIO * loss  # also True if one of them is NaN
    return has_larger_loss or bool(validation["top1"] < training["top1"] - TOP1_GAP)


def check_running_statistics(
    recipe: Recipe, saved: checkpoint.SavedCheckpoint, images: Dataset, device: Device, torch_device: torch.device
) -> StatisticsCheck | None:
    """Score a checkpoint with its running averages and with recomputed ones; None if there is nothing to recompute."""
    computation = open_checkpoint(recipe, saved, device, torch_device)
    norms = find_recomputable_norms(computation.network)
    if not norms:
        return None
    momenta = {norm.momentum for norm in norms}
    loss = build_loss(recipe, training=False)
    open_batches = partial(recipe.data.open_batches, device=torch_device, seed=recipe.seed)
    with open_batches(images.validation, train=False) as validation, open_batches(images.train, train=True) as training:
        before = score_batches(computation, validation, loss, VALIDATION_BATCHES, MAX_SECONDS)
        timed_batches = limit_seconds(iterate_training_batches(training), MAX_SECONDS)
        done = recompute_statistics(computation, timed_batches, TRAINING_BATCHES)
        # The same images as before, even if they take longer now.
        after = score_batches(computation, validation, loss, before.batches, math.inf)
    return StatisticsCheck(
        training_batches=done,
        images=before.images,
        top1=before.top1,
        loss=before.loss,
        recomputed_top1=after.top1,
        recomputed_loss=after.loss,
        steps=saved.step,
        momentum=momenta.pop() if len(momenta) == 1 else None,
    )


def open_checkpoint(
    recipe: Recipe, saved: checkpoint.SavedCheckpoint, device: Device, torch_device: torch.device
) -> Computation:
    """Return a new network, not compiled, with the checkpoint's weights, or their averages if the recipe has them."""
    model = place_model(build_model(recipe), torch_device)
    freeze(model, recipe.init.freeze)
    weights = saved.read_averaged_weights() if recipe.ema else saved.read_model()
    checkpoint.load_model(model, weights, saved.path)
    plan = plan_precision(recipe.precision, device)
    return Computation(model, plan, torch_device)


def find_recomputable_norms(network: nn.Module) -> list[_BatchNorm]:
    """Return the batch norms that have running averages and are not frozen; leave the network in evaluation mode."""
    network.train()
    set_frozen_norms_to_evaluation(network)
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    recomputable = [norm for norm in norms if norm.training and norm.running_mean is not None]
    network.eval()
    return recomputable


@torch.no_grad()
def recompute_statistics(computation: Computation, batches: Iterable[Batch], max_batches: int) -> int:
    """Replace running averages by means over up to `max_batches` training batches; return the number of batches.

    Weights and the averages of frozen norms stay unchanged.
    """
    norms = find_recomputable_norms(computation.network)
    if not norms:
        raise BadValue("--recompute-batch-norm: the network has no trained batch norm with running averages.")
    momenta = [norm.momentum for norm in norms]
    computation.train(False)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
        norm.train()
    used = 0
    try:
        for batch in islice(batches, max_batches):
            computation(batch.images)
            used += 1
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        computation.train(False)
    computation.gather_statistics()
    return used


def iterate_training_batches(stream: BatchStream) -> Iterator[Batch]:
    """Yield training batches, epoch after epoch."""
    for epoch in count():
        yield from stream.epoch(epoch)


def limit_seconds(batches: Iterator[Batch], seconds: float) -> Iterator[Batch]:
    """Yield batches until `seconds` have passed, but at least two batches if there are so many."""
    end = time.monotonic() + seconds
    for number, batch in enumerate(batches):
        if number >= 2 and time.monotonic() > end:
            return
        yield batch


@dataclass(frozen=True)
class BatchScores:
    """Scores of some batches of validation images."""

    batches: int
    images: int
    top1: float
    loss: float


@torch.no_grad()
def score_batches(
    computation: Computation, stream: BatchStream, loss: Loss, max_batches: int, seconds: float
) -> BatchScores:
    """Score up to `max_batches` validation batches; after `seconds`, and two batches, begin no further one."""
    computation.train(False)
    done, images, correct, total_loss = 0, 0, 0, 0.0
    for batch in islice(limit_seconds(stream.epoch(0), seconds), max_batches):
        unpadded = int(batch.mask.sum()) if batch.mask is not None else len(batch.labels)  # images, without padding
        logits, labels = computation(batch.images)[:unpadded], batch.labels[:unpadded]
        correct += int((logits.argmax(1) == labels).sum())
        total_loss += float(loss(logits, labels)) * unpadded
        images += unpadded
        done += 1
    return BatchScores(done, images, correct / images, total_loss / images)
