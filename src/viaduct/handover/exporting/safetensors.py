"""Weights alone, with metadata that say which network they are for; `viaduct ... --recipe` and torch read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from viaduct.handover.classifier import CPU, Classifier
from viaduct.handover.exporting.format import Batch, Written
from viaduct.handover.exporting.request import Request
from viaduct.training.networks import build_model, network_options, place_model
from viaduct.weights.exporting import describe, write_safetensors
from viaduct.weights.recognise import Guess

PACKAGES: tuple[str, ...] = ()
CHECK_PACKAGES: tuple[str, ...] = ()


def write(classifier: Classifier, request: Request, path: Path) -> Written:
    """Write every tensor of the network's state under its own name."""
    own = not isinstance(classifier.recipe.model, str)
    options = {} if own else network_options(classifier.recipe)
    guess = Guess(classifier.name, len(classifier.labels), 1.0, options=tuple(options.items()))
    source = str(classifier.run or classifier.weights)
    metadata = describe(guess, classifier.step, source, recipe=classifier.recipe_name, ema=classifier.averaged)
    tensors = classifier.network.state_dict()
    write_safetensors(path, tensors, metadata)
    return Written((), (), {"tensors": len(tensors), "metadata": metadata})


class Rebuilt:
    """The recipe's network built anew, with the weights of the file."""

    runtime = f"torch {torch.__version__}"
    channels_last = False

    def __init__(self, path: Path, classifier: Classifier) -> None:
        self.network = place_model(build_model(classifier.recipe), CPU).eval()
        self.network.load_state_dict(load_file(path))

    def run(self, batch: Batch) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        with torch.inference_mode():
            logits = self.network(torch.from_numpy(batch))
            return torch.softmax(logits, 1).numpy(), logits.argmax(1).numpy()


def open_runner(path: Path, classifier: Classifier, request: Request) -> Rebuilt:
    """Read the file back into a fresh network."""
    return Rebuilt(path, classifier)
