"""The exported module (preprocessing if the input is pixels, network and softmax) and its graph.

    module = build_module(classifier, request)
    program = trace(module, classifier, batch=None)             torch.export's ExportedProgram, for any batch size

Inputs are `pixels`, uint8 N x H x W x 3, or `inputs`, the prepared float32 N x 3 x size x size; outputs are
`probabilities`, float32 N x classes, and `classes`, int64 N.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.devices.base import summarise_error
from viaduct.errors import BadValue, ViaductError, is_out_of_memory
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.pixels import PixelPreprocessing, build_preprocessing
from viaduct.handover.exporting.request import ExportRequest
from viaduct.handover.folding import fold_batch_norms

OUTPUTS = ("probabilities", "classes")
EXAMPLE_BATCH = 2  # with 1, torch.export would make the batch dimension a constant


class CannotExport(ViaductError):
    """The network cannot be exported to a format."""


class CastNetwork(nn.Module):
    """Network with float32 inputs and outputs that computes in another precision, `compute`."""

    def __init__(self, network: nn.Module, compute: torch.dtype) -> None:
        super().__init__()
        self.network, self.compute = network, compute

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.network(inputs.to(self.compute))
        return logits.to(torch.float32)


class ExportedModule(nn.Module):
    """Preprocessing of pixels (None: the input is prepared already), network and softmax."""

    def __init__(self, prepare: PixelPreprocessing | None, network: CastNetwork) -> None:
        super().__init__()
        self.prepare, self.network = prepare, network

    @property
    def pixels_shape(self) -> tuple[int, int] | None:
        """Height and width of the pixels, if the preprocessing takes one size only; None otherwise."""
        return None if self.prepare is None else self.prepare.shape

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(inputs if self.prepare is None else self.prepare(inputs))
        return torch.softmax(logits, 1), torch.argmax(logits, 1)


def build_network(classifier: Classifier, request: ExportRequest) -> CastNetwork:
    """Return a copy of the network, folded if requested, in the requested precision."""
    network = classifier.network
    network = fold_batch_norms(network, classifier.size) if request.fold else copy.deepcopy(network)
    check_logits(network, classifier)
    compute = torch.float16 if request.precision == "fp16" else torch.float32
    contiguous: nn.Module = network.to(compute, memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return CastNetwork(contiguous, compute).eval()


def check_logits(network: nn.Module, classifier: Classifier) -> None:
    """Raise BadValue if the network, which may be the user's own, fails or does not return a logit for each label."""
    with torch.inference_mode(), explain_failure(BadValue, "the network fails on an input of zeros"):
        logits = network(torch.zeros(EXAMPLE_BATCH, 3, classifier.size, classifier.size))
    expected = (EXAMPLE_BATCH, len(classifier.labels))
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        output = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise BadValue(f"the network gives {output} for {EXAMPLE_BATCH} images, not a tensor of shape {expected}.")


def build_module(classifier: Classifier, request: ExportRequest) -> ExportedModule:
    """Build the module that is exported, with the options of the request."""
    takes_pixels = request.input in ("pixels", "image-bytes")
    prepare = build_preprocessing(classifier.recipe.data, classifier.image_shape) if takes_pixels else None
    return ExportedModule(prepare, build_network(classifier, request)).eval().requires_grad_(False)


def trace(module: ExportedModule, classifier: Classifier, batch: int | None) -> torch.export.ExportedProgram:
    """Trace the exported module; `batch` None means any batch size.

    Height and width of pixels are variable unless the preprocessing has a fixed size.
    """
    if module.prepare is None:
        size = classifier.size
        example = torch.zeros(batch or EXAMPLE_BATCH, 3, size, size)
    else:
        # The example has no special size: height and width differ from each other and from the network's input.
        height, width = module.pixels_shape or (classifier.size + 3, classifier.size + 5)
        example = torch.zeros(batch or EXAMPLE_BATCH, height, width, 3, dtype=torch.uint8)
    sizes = {} if batch else {0: torch.export.Dim("batch", min=1)}
    if module.prepare is not None and module.pixels_shape is None:
        sizes |= {1: torch.export.Dim("height", min=1), 2: torch.export.Dim("width", min=1)}
    return export_module(module, example, sizes)


def export_module(module: nn.Module, example: Tensor, sizes: dict[int, Any]) -> torch.export.ExportedProgram:
    """Trace a module with torch.export; `sizes` are the variable dimensions of its input."""
    hint = "A forward pass that depends on values, or calls other libraries, has no graph; try --to safetensors."
    explained = explain_failure(CannotExport, "torch.export cannot trace the network", hint)
    with explained, silence_exporters(), torch.no_grad():
        return torch.export.export(module, (example,), dynamic_shapes=(sizes or None,), strict=False)


@contextmanager
def explain_failure(error_class: type[ViaductError], failure: str, *hints: str) -> Iterator[None]:
    """Turn any error within the `with` block into an `error_class` whose message begins with `failure`.

    The user's network and the runtimes may raise anything. Viaduct's own errors and a lack of memory stay as they are.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ViaductError) or is_out_of_memory(error):
            raise
        raise error_class(f"{failure}: {summarise_error(error)}", *hints) from error


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Suppress the exporters' progress and deprecation notices within the `with` block."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
