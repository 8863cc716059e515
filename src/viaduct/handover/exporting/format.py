"""The interface of the modules that write one format each (onnx.py, pt2.py, …), and their common types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.request import ExportRequest

Batch: TypeAlias = npt.NDArray[Any] | Sequence[bytes]
"""Input of a graph: an array of pixels or of prepared images, or encoded images."""
Predictions: TypeAlias = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
"""Probabilities and classes of a batch."""


@dataclass(frozen=True)
class TensorInfo:
    """Input or output of the graph, for the model card."""

    name: str
    shape: tuple[int | str, ...]  # a string is the name of a variable size
    dtype: str  # such as uint8

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {' x '.join(map(str, self.shape))}"


@dataclass(frozen=True)
class FileDescription:
    """Inputs and outputs of the graph in an exported file, and further facts about the file, for the model card."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    facts: dict[str, Any] = field(default_factory=dict)


class Runner(Protocol):
    """Exported file, opened in the runtime it was written for."""

    runtime: str  # name and version
    takes_nhwc: bool  # True: prepared images are N x height x width x 3

    def run(self, batch: Batch) -> Predictions: ...


class Format(Protocol):
    """Interface of a module in this folder that writes one format."""

    WRITER_PACKAGES: tuple[str, ...]  # packages that are needed to write a file
    RUNNER_PACKAGES: tuple[str, ...]  # packages that are needed to run it

    def write(self, classifier: Classifier, request: ExportRequest, path: Path) -> FileDescription: ...

    def open_runner(self, path: Path, classifier: Classifier) -> Runner: ...


def load_format(form: str) -> Format:
    """Return the module of a format."""
    module: Any = import_module(f"viaduct.handover.exporting.{form.replace('-', '_')}")
    return cast(Format, module)


def describe_tensors(
    classifier: Classifier, request: ExportRequest, shape: tuple[int, int] | None
) -> tuple[TensorInfo, tuple[TensorInfo, ...]]:
    """Describe input and outputs of a graph in PyTorch's layout, which onnx.py and pt2.py write.

    `shape` is height and width of pixels, None if they are variable. A graph for image bytes takes one image a call.
    """
    batch: int | str = request.batch or "batch"
    height, width = shape or ("height", "width")
    inputs = {
        "tensor": TensorInfo("inputs", (batch, 3, classifier.size, classifier.size), "float32"),
        "pixels": TensorInfo("pixels", (batch, height, width, 3), "uint8"),
        "image-bytes": TensorInfo("image_bytes", ("length",), "uint8"),
    }
    probabilities = TensorInfo("probabilities", (batch, len(classifier.labels)), "float32")
    return inputs[request.input], (probabilities, TensorInfo("classes", (batch,), "int64"))
