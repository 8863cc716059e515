"""torch.export's archive, which runs in PyTorch without viaduct.

torch.export.load("model.pt2").module()(pixels)          (probabilities, classes)
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from viaduct.atomic_files import replace_file
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Answers, Batch, Written, graph_ports
from viaduct.handover.exporting.graph import build_served, silence_exporters, trace
from viaduct.handover.exporting.request import Request

PACKAGES: tuple[str, ...] = ()
CHECK_PACKAGES: tuple[str, ...] = ()


def write(classifier: Classifier, request: Request, path: Path) -> Written:
    """Write the graph and its weights."""
    served = build_served(classifier, request)
    program = trace(served, classifier, request.batch)
    archive = io.BytesIO()  # in memory, because for a full disk torch does not raise an OSError
    with silence_exporters():
        torch.export.save(program, archive)
    with replace_file(path) as file:
        file.write(archive.getbuffer())
    graph_input, outputs = graph_ports(classifier, request, served.prepare.shape if served.prepare else None)
    return Written((graph_input,), outputs)


class Program:
    """.pt2 file opened in PyTorch."""

    runtime = f"torch {torch.__version__}"
    channels_last = False

    def __init__(self, path: Path, classifier: Classifier) -> None:
        with silence_exporters():
            self.module: Any = torch.export.load(str(path)).module()

    def run(self, batch: Batch) -> Answers:
        with torch.inference_mode():
            probabilities, classes = self.module(torch.from_numpy(batch))
        return probabilities.numpy(), classes.numpy()


open_runner = Program
