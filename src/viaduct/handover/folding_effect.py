"""Measure how far folding changes probabilities: a folded engine against the network as `viaduct evaluate` runs it.

    sample = draw_sample(classifier, "cpu", None)      validation images of the run; noise if there are none
    print(measure_effect(engine, sample))

    run = ComparedRun(engine, reference, print)        the same for the first batch that is predicted

Both compute in the same precision, so that only folding differs. The figures hold for these images; those of others may
change more. Noise shows least: in bf16 the probabilities of real images were seen to change 12 times as much.
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

IMAGES = 16
MORE = "Other images may differ more."


@dataclass(frozen=True)
class Sample:
    """Prepared images with the probabilities of the network that is not folded."""

    inputs: Tensor
    expected: Tensor
    origin: str  # such as "16 images of noise"
    caution: str


@dataclass(frozen=True)
class FoldingEffect:
    """Effect of folding on the probabilities of some images."""

    largest: float  # difference of a probability; not finite if an output is not
    equal: int  # images whose most probable class stays the same
    images: int
    origin: str
    caution: str

    def __str__(self) -> str:
        return (
            f"Batch norms folded: on {self.origin} probabilities differ by at most {self.largest:.1e} from those of "
            f"the network as it is, top-1 equal on {self.equal:,} of {self.images:,}. {self.caution}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "images": self.images,
            "origin": self.origin,
            "largest_difference_of_a_probability": self.largest if np.isfinite(self.largest) else None,
            "equal_top1": self.equal,
        }


def draw_sample(classifier: Classifier, device: str, precision: str | None) -> Sample:
    """Return validation images of the run, or noise where there are none, computed without folding."""
    encoded = read_validation(classifier, IMAGES)
    if encoded:
        inputs = torch.from_numpy(np.stack([classifier.prepare(data) for data in encoded])).permute(0, 3, 1, 2)
        origin, caution = f"{len(encoded)} of the run's validation images", MORE
    else:
        shape = (IMAGES, 3, classifier.size, classifier.size)
        inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        origin = f"{IMAGES} images of noise"
        caution = "There are no validation images to measure with; real images may differ much more."
    reference = build_engine(classifier, device, precision, fold=False)
    if reference.precision != "fp32":
        caution += " Try --precision fp32 where that matters."
    return Sample(inputs, reference.run(inputs).softmax(1), origin, caution)


def measure_effect(engine: Engine, sample: Sample) -> FoldingEffect:
    """Compare an engine's probabilities with those of the network that is not folded."""
    return compare(engine.run(sample.inputs), sample)


def compare(logits: Tensor, sample: Sample) -> FoldingEffect:
    """Compare the probabilities of these logits with the expected ones."""
    probabilities = logits.softmax(1)
    equal = int((probabilities.argmax(1) == sample.expected.argmax(1)).sum())
    largest = float((probabilities - sample.expected).abs().max())
    return FoldingEffect(largest, equal, len(probabilities), sample.origin, sample.caution)


class ComparedRun:
    """An engine whose first batch also runs through the network that is not folded; `report` receives the effect."""

    def __init__(self, engine: Engine, reference: Engine, report: Callable[[FoldingEffect], object]) -> None:
        self.engine, self.report = engine, report
        self.reference: Engine | None = reference
        self.effect: FoldingEffect | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        logits = self.engine.run(inputs)
        if self.reference is not None:
            origin = "the first image" if len(inputs) == 1 else f"the first {len(inputs):,} images"
            expected = self.reference.run(inputs).softmax(1)
            self.effect = compare(logits, Sample(inputs, expected, origin, MORE))
            self.reference = None  # which frees its memory
            self.report(self.effect)
        return logits
