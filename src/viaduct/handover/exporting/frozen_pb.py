"""A frozen graph: one GraphDef with the weights as constants, for TensorFlow 1 and converters such as Ascend's ATC.

Input node `input_tensor`; output nodes `probabilities`, `classes`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from viaduct.atomic_files import write_file
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, FileDescription, Predictions
from viaduct.handover.exporting.request import ExportRequest
from viaduct.handover.exporting.tf_graph import INPUT, OUTPUTS, build_graph, convert_batch, convert_outputs
from viaduct.handover.exporting.tf_network import import_tensorflow

WRITER_PACKAGES = ("tensorflow",)
RUNNER_PACKAGES = ("tensorflow",)


def write(classifier: Classifier, request: ExportRequest, path: Path) -> FileDescription:
    """Write the graph."""
    built = build_graph(classifier, request)
    write_file(path, built.graph.as_graph_def().SerializeToString())
    (graph_input,) = built.description.inputs  # named as in a SavedModel's signature
    return replace(built.description, inputs=(replace(graph_input, name=INPUT),))


class FrozenGraph:
    """.pb file opened in a TensorFlow 1 session."""

    takes_nhwc = True

    def __init__(self, path: Path, classifier: Classifier) -> None:
        tf = import_tensorflow()
        self.runtime = f"TensorFlow {tf.__version__}"
        definition = tf.compat.v1.GraphDef.FromString(path.read_bytes())
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(definition, name="")
        self.session: Any = tf.compat.v1.Session(graph=graph)

    def run(self, batch: Batch) -> Predictions:
        fetches = {name: f"{name}:0" for name in OUTPUTS}
        return convert_outputs(self.session.run(fetches, {f"{INPUT}:0": convert_batch(batch)}))


open_runner = FrozenGraph
