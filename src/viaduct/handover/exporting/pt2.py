"""torch.export's archive, which runs in PyTorch without viaduct.

torch.export.load("model.pt2").module()(pixels)          (probabilities, classes) of uint8 N x H x W x 3
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from viaduct.atomic_files import replace_file
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, FileDescription, Predictions, describe_tensors
from viaduct.handover.exporting.graph import build_module, silence_exporters, trace
from viaduct.handover.exporting.request import ExportRequest

WRITER_PACKAGES: tuple[str, ...] = ()
RUNNER_PACKAGES: tuple[str, ...] = ()


def write(classifier: Classifier, request: ExportRequest, path: Path) -> FileDescription:
    """Write the graph and its weights."""
    module = build_module(classifier, request)
    program = trace(module, classifier, request.batch)
    archive = io.BytesIO()  # in memory: if torch wrote the file, a full disk would not be an OSError
    with silence_exporters():
        torch.export.save(program, archive)
    with replace_file(path) as file:
        file.write(archive.getbuffer())
    graph_input, outputs = describe_tensors(classifier, request, module.pixels_shape)
    return FileDescription((graph_input,), outputs)


class Program:
    """.pt2 file opened in PyTorch."""

    runtime = f"torch {torch.__version__}"
    takes_nhwc = False

    def __init__(self, path: Path, classifier: Classifier) -> None:
        with silence_exporters():
            self.module: Any = torch.export.load(str(path)).module()

    def run(self, batch: Batch) -> Predictions:
        with torch.inference_mode():
            probabilities, classes = self.module(torch.from_numpy(batch))
        return probabilities.numpy(), classes.numpy()


open_runner = Program
