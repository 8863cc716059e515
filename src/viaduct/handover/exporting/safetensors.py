"""Weights without a graph, with metadata that name their network."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from viaduct.handover.classifier import CPU, Classifier
from viaduct.handover.exporting.format import Batch, FileDescription, Predictions
from viaduct.handover.exporting.request import ExportRequest
from viaduct.training.networks import build_model, collect_network_options, place_model
from viaduct.weights.exporting import build_metadata, write_safetensors
from viaduct.weights.recognise import Guess

WRITER_PACKAGES: tuple[str, ...] = ()
RUNNER_PACKAGES: tuple[str, ...] = ()


def write(classifier: Classifier, request: ExportRequest, path: Path) -> FileDescription:
    """Write every tensor of the network's state under its own name."""
    is_named = isinstance(classifier.recipe.model, str)  # otherwise the model is a function of the user
    options = collect_network_options(classifier.recipe) if is_named else {}
    network = Guess(classifier.name, len(classifier.labels), 1.0, options=tuple(options.items()))  # 1.0: certain
    source = str(classifier.run or classifier.weights)
    metadata = build_metadata(network, classifier.step, source, recipe=classifier.recipe_name, ema=classifier.averaged)
    tensors = classifier.network.state_dict()
    write_safetensors(path, tensors, metadata)
    return FileDescription((), (), {"tensors": len(tensors), "metadata": metadata})


class RebuiltNetwork:
    """Network built anew from the recipe, with the weights of the file."""

    runtime = f"torch {torch.__version__}"
    takes_nhwc = False

    def __init__(self, path: Path, classifier: Classifier) -> None:
        self.network = place_model(build_model(classifier.recipe), CPU).eval()
        self.network.load_state_dict(load_file(path))

    def run(self, batch: Batch) -> Predictions:
        with torch.inference_mode():
            logits = self.network(torch.from_numpy(batch))
            return torch.softmax(logits, 1).numpy(), logits.argmax(1).numpy()


open_runner = RebuiltNetwork
