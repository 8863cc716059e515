"""Measurement of how much folding and fusing (folding.py, fusing.py) change the probabilities, at equal precision.

    sample = draw_sample(classifier, "cpu", None)      validation images of the run; noise if none can be read
    print(measure_effect(engine, sample))

    run = ComparedRun(engine, unfolded, print)         measures the effect on the first batch that it is called with

The effect on other images may be larger. In bf16 it was 12 times as large on real images as on noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from viaduct.handover.classifier import Classifier
from viaduct.handover.engine import Engine, build_engine
from viaduct.handover.validation_images import read_validation

IMAGES = 16  # most images of a sample
CAUTION = "Other images may differ more."


@dataclass(frozen=True)
class Sample:
    """Prepared images with the probabilities of the unfolded network."""

    inputs: Tensor  # N x 3 x size x size
    expected: Tensor  # probabilities, N x classes
    origin: str  # such as "16 images of noise"
    caution: str  # sentence for the user about what this sample does not show


@dataclass(frozen=True)
class FoldingEffect:
    """Effect of folding on the probabilities of some images."""

    largest: float  # largest difference of a probability; not finite if an output is not finite
    equal: int  # images whose most probable class is the same
    images: int
    origin: str
    caution: str

    def __str__(self) -> str:
        return (
            f"Batch norms folded: on {self.origin} probabilities differ by at most {self.largest:.1e} from those of "
            f"the network as it is, top-1 equal on {self.equal:,} of {self.images:,}. {self.caution}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the effect as JSON data."""
        return {
            "images": self.images,
            "origin": self.origin,
            "largest_difference_of_a_probability": self.largest if np.isfinite(self.largest) else None,
            "equal_top1": self.equal,
        }


def draw_sample(classifier: Classifier, device: str, precision: str | None) -> Sample:
    """Return validation images of the run, or noise if none can be read, with the unfolded network's probabilities.

    `precision` is the compute precision of the engine to be measured; None: the recipe's.
    """
    encoded = read_validation(classifier, IMAGES)
    if encoded:
        inputs = torch.from_numpy(np.stack([classifier.prepare(data) for data in encoded])).permute(0, 3, 1, 2)
        origin, caution = f"{len(encoded)} of the run's validation images", CAUTION
    else:
        shape = (IMAGES, 3, classifier.size, classifier.size)
        inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        origin = f"{IMAGES} images of noise"
        caution = "No validation images could be read; real images may differ much more."
    unfolded = build_engine(classifier, device, precision, fold=False)
    if unfolded.precision != "fp32":
        caution += " Try --precision fp32 if this matters."
    return Sample(inputs, unfolded.run(inputs).softmax(1), origin, caution)


def measure_effect(engine: Engine, sample: Sample) -> FoldingEffect:
    """Compare an engine's probabilities with those of the unfolded network."""
    return compare(engine.run(sample.inputs), sample)


def compare(logits: Tensor, sample: Sample) -> FoldingEffect:
    """Compare the probabilities of these logits with the expected ones."""
    probabilities = logits.softmax(1)
    equal = int((probabilities.argmax(1) == sample.expected.argmax(1)).sum())
    largest = float((probabilities - sample.expected).abs().max())
    return FoldingEffect(largest, equal, len(probabilities), sample.origin, sample.caution)


class ComparedRun:
    """Engine whose first batch also runs on the `unfolded` engine; `report` receives the effect."""

    def __init__(self, engine: Engine, unfolded: Engine, report: Callable[[FoldingEffect], object]) -> None:
        self.engine, self.report = engine, report
        self.unfolded: Engine | None = unfolded
        self.effect: FoldingEffect | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        logits = self.engine.run(inputs)
        if self.unfolded is not None:
            origin = "the first image" if len(inputs) == 1 else f"the first {len(inputs):,} images"
            expected = self.unfolded.run(inputs).softmax(1)
            self.effect = compare(logits, Sample(inputs, expected, origin, CAUTION))
            self.unfolded = None  # frees its memory
            self.report(self.effect)
        return logits
