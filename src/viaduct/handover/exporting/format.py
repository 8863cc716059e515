"""What every format module offers, and where to find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.request import Request

Array = npt.NDArray[Any]
Batch = Array | Sequence[bytes]

MODULES = {
    "onnx": "onnx",
    "pt2": "pt2",
    "safetensors": "safetensors",
    "savedmodel": "savedmodel",
    "frozen-pb": "frozen_pb",
}


@dataclass(frozen=True)
class Port:
    """An input or output of the graph, for the model card."""

    name: str
    shape: tuple[int | str, ...]  # a string is a size that is open
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {' x '.join(map(str, self.shape))}"


@dataclass(frozen=True)
class Written:
    """Result of a format: the ports of its graph and notes for the user."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    facts: dict[str, Any] = field(default_factory=dict)


class Runner(Protocol):
    """The exported file, opened in its own runtime."""

    runtime: str  # name and version
    channels_last: bool  # layout of a prepared tensor

    def run(self, batch: Batch) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return probabilities and classes of a batch."""
        ...


class Format(Protocol):
    """A module of this folder that writes one format."""

    PACKAGES: tuple[str, ...]  # needed to write it
    CHECK_PACKAGES: tuple[str, ...]  # needed to run it

    def write(self, classifier: Classifier, request: Request, path: Path) -> Written: ...

    def open_runner(self, path: Path, classifier: Classifier, request: Request) -> Runner: ...


def load_format(form: str) -> Format:
    """Return the module of a format."""
    module: Any = import_module(f"viaduct.handover.exporting.{MODULES[form]}")
    found: Format = module
    return found


def graph_ports(
    classifier: Classifier, request: Request, shape: tuple[int, int] | None
) -> tuple[Port, tuple[Port, ...]]:
    """Return the input and the outputs of a graph with our own names; `shape` is that of pixels, where it is fixed."""
    batch: int | str = request.batch or "batch"
    height, width = shape or ("height", "width")
    if request.input == "tensor":
        taken = Port("inputs", (batch, 3, classifier.size, classifier.size), "float32")
    elif request.input == "pixels":
        taken = Port("pixels", (batch, height, width, 3), "uint8")
    else:
        taken = Port("image_bytes", ("length",), "uint8")
    outputs = (Port("probabilities", (batch, len(classifier.labels)), "float32"), Port("classes", (batch,), "int64"))
    return taken, outputs
