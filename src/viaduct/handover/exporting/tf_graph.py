"""The TensorFlow 1 graph of a SavedModel or a frozen graph, with the names of TensorFlow's official ResNet.

The input is the placeholder `input_tensor`: encoded images as strings, or prepared float32 images N x size x size x 3.
In a SavedModel's signature these are called `image_bytes` and `input`. The outputs are `probabilities`, computed by the
operator `softmax_tensor`, and `classes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, FileDescription, Predictions, TensorInfo
from viaduct.handover.exporting.request import ExportRequest
from viaduct.handover.exporting.tf_images import prepare_encoded
from viaduct.handover.exporting.tf_network import import_tensorflow, trace_network, translate

INPUT = "input_tensor"
OUTPUTS = ("classes", "probabilities")


@dataclass(frozen=True)
class TensorFlowGraph:
    """TensorFlow graph with its input and outputs."""

    graph: Any
    input: Any  # tensor, the placeholder
    outputs: dict[str, Any]  # tensors by name
    description: FileDescription  # names the input as in a SavedModel's signature


def build_graph(classifier: Classifier, request: ExportRequest) -> TensorFlowGraph:
    """Build the TensorFlow 1 graph of the network, with preprocessing if the input is encoded images."""
    tf = import_tensorflow()
    program = trace_network(classifier, request)
    size, takes_bytes = classifier.size, request.input == "image-bytes"
    with tf.Graph().as_default() as graph, use_control_flow_v1(tf):
        shape = [request.batch] if takes_bytes else [request.batch, size, size, 3]
        placeholder = tf.compat.v1.placeholder(tf.string if takes_bytes else tf.float32, shape, name=INPUT)
        images = prepare_encoded(classifier, placeholder) if takes_bytes else placeholder
        logits = tf.cast(translate(program, images), tf.float32)
        logits = tf.ensure_shape(logits, (request.batch, len(classifier.labels)))
        outputs = {
            "classes": tf.argmax(logits, axis=1, name="classes"),
            "probabilities": tf.identity(tf.nn.softmax(logits, name="softmax_tensor"), name="probabilities"),
        }
    batch: int | str = request.batch or "batch"
    key = "image_bytes" if takes_bytes else "input"
    dtype = describe_strings(classifier) if takes_bytes else "float32"
    graph_input = TensorInfo(key, (batch,) if takes_bytes else (batch, size, size, 3), dtype)
    graph_outputs = (
        TensorInfo("classes", (batch,), "int64"),
        TensorInfo("probabilities", (batch, len(classifier.labels)), "float32"),
    )
    description = FileDescription((graph_input,), graph_outputs, {"tensorflow": tf.__version__})
    return TensorFlowGraph(graph, placeholder, outputs, description)


def describe_strings(classifier: Classifier) -> str:
    """Return the type of the graph's input strings for the model card."""
    shape = classifier.fixed_image_shape
    return "string (JPEG, PNG)" if shape is None else f"string (JPEG, PNG of {shape[1]}x{shape[0]} pixels, no other)"


@contextmanager
def use_control_flow_v1(tf: Any) -> Iterator[None]:
    """Use TensorFlow 1's control flow within the `with` block, because converters of frozen graphs need it."""
    was_enabled = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if was_enabled:
            tf.compat.v1.enable_control_flow_v2()


def convert_batch(batch: Batch) -> Any:
    """Return a batch as TensorFlow takes it: encoded images become an array of objects."""
    return batch if isinstance(batch, np.ndarray) else np.array(list(batch), dtype=object)


def convert_outputs(outputs: dict[str, Any]) -> Predictions:
    return np.asarray(outputs["probabilities"]), np.asarray(outputs["classes"])
