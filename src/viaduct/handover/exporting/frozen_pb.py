"""A frozen graph: one GraphDef with the weights as constants, for TensorFlow 1 and converters such as Ascend's ATC.

Input node `input_tensor`; output nodes `probabilities`, `classes`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from viaduct.atomic_files import replace_file
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, Port, Written
from viaduct.handover.exporting.request import Request
from viaduct.handover.exporting.tf_graph import INPUT, OUTPUTS, as_strings_or_array, build_graph, to_results
from viaduct.handover.exporting.tf_network import import_tensorflow

PACKAGES = ("tensorflow",)
CHECK_PACKAGES = ("tensorflow",)


def write(classifier: Classifier, request: Request, path: Path) -> Written:
    """Write the graph."""
    built = build_graph(classifier, request)
    with replace_file(path) as file:
        file.write(built.graph.as_graph_def().SerializeToString())
    (port,) = built.written.inputs
    return Written((Port(INPUT, port.shape, port.dtype),), built.written.outputs, built.written.facts)


class FrozenGraph:
    """A .pb file in a TensorFlow 1 session."""

    channels_last = True

    def __init__(self, path: Path) -> None:
        tf = import_tensorflow()
        self.runtime = f"TensorFlow {tf.__version__}"
        definition = tf.compat.v1.GraphDef.FromString(path.read_bytes())
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(definition, name="")
        self.session: Any = tf.compat.v1.Session(graph=graph)

    def run(self, batch: Batch) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        fetched = {name: f"{name}:0" for name in OUTPUTS}
        return to_results(self.session.run(fetched, {f"{INPUT}:0": as_strings_or_array(batch)}))


def open_runner(path: Path, classifier: Classifier, request: Request) -> FrozenGraph:
    """Open the file in a session."""
    return FrozenGraph(path)
